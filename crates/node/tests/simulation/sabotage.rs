//! The bugs that are planted on purpose, to test that the checks find them.

/// A bug in the layer between the broker and the simulated kernel and clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// The journal loses the records of segments.
    ForgetSegments,
    /// The journal loses the records of reserved bytes.
    ForgetReserves,
    /// The journal loses the records of workflows' ends.
    ForgetEnds,
    /// Answers are sent before the records on which they depend are written.
    AnswerFirst,
    /// The keeper keeps segments that were removed.
    KeepRemoved,
    /// The keeper keeps the listening sockets of workflows that have ended.
    KeepListening,
    /// The liveness table still shows dead members as alive.
    KeepTheDead,
    /// A broker that starts again counts its ids from the beginning.
    CountAgain,
    /// Some answers are sent twice.
    AnswerTwice,
    /// Some answers are not sent.
    LoseAnswers,
    /// Every client gets a writable descriptor.
    WritableForAll,
    /// Endpoints get one grant more than was asked for.
    GrantTooMuch,
    /// Workflows get twice the quota that was asked for.
    QuotaTwice,
    /// The journal loses the outcomes of requests, so that a repeated request is carried out twice.
    ForgetOutcomes,
    /// The kernel answers for every item that no process has it open.
    ProveAll,
    /// The journal loses changes of items' owners.
    ForgetOwners,
    /// Slots of pin pages are not cleared.
    KeepPins,
    /// The journal loses the records of slots that observers got.
    ForgetPins,
    /// The liveness table does not tell publishers of new pin pages.
    TellNoPublisher,
    /// The journal loses the endpoint to which a pin page belongs.
    ForgetEndpoints,
    /// Observers can write to the pool of a series.
    WritablePools,
    /// Some questions about items' files are never answered. Only [`Broker::check_at_rest`] finds this, because no
    /// client is promised that an item becomes ready.
    LoseVerdicts,
    /// A member that the table does not show counts as dead.
    AbsenceIsDeath,
    /// A member whose connection has ended counts as dead.
    BuryTheCutOff,
    /// Members whose session is over, but which live, lose their slots to other members.
    FreeGhosts,
    /// After the keeper's end, any memory that is offered is accepted.
    AdoptAnything,
}

impl Sabotage {
    pub const ALL: [Self; 26] = [
        Self::ForgetSegments,
        Self::ForgetReserves,
        Self::ForgetEnds,
        Self::AnswerFirst,
        Self::KeepRemoved,
        Self::KeepListening,
        Self::KeepTheDead,
        Self::CountAgain,
        Self::AnswerTwice,
        Self::LoseAnswers,
        Self::WritableForAll,
        Self::GrantTooMuch,
        Self::QuotaTwice,
        Self::ForgetOutcomes,
        Self::KeepPins,
        Self::ForgetPins,
        Self::TellNoPublisher,
        Self::ForgetEndpoints,
        Self::WritablePools,
        Self::LoseVerdicts,
        Self::ProveAll,
        Self::ForgetOwners,
        Self::AbsenceIsDeath,
        Self::BuryTheCutOff,
        Self::FreeGhosts,
        Self::AdoptAnything,
    ];
}
