//! The bugs that are planted on purpose, to test that the checks find them.

/// A bug in the layer that connects the broker with the simulated kernel and the simulated clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// The journal loses the records of segments.
    ForgetSegments,
    /// The journal loses the records that say how many bytes are reserved.
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
    /// A broker that starts takes the ids after the largest id that still exists, and so gives out ids of removed
    /// objects again.
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
    /// The simulated kernel says of every item that no process has it open.
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
    /// The results of some proofs never reach the broker. Only [`Broker::check_at_rest`] finds this, because the broker
    /// promises no client that an item becomes ready.
    LoseVerdicts,
    /// Readers of the liveness table take a member that is not in the table for dead.
    AbsenceIsDeath,
    /// As soon as a member's connection has ended, the broker is told that the member's process died, even if the
    /// process still lives.
    BuryTheCutOff,
    /// If a member's session is over but its process is still alive, another member gets its slot of the liveness
    /// table.
    FreeGhosts,
    /// After the keeper's death, the daemon accepts any memory that a member offers.
    AdoptAnything,
    /// Every broker of a keeper tells its members the same number. So members do not offer what a broker has lost while
    /// the keeper lived.
    OneNumber,
    /// Clients do not send refused offers again.
    ForgetRefused,
    /// The journal loses the records of the members that may hold something.
    ForgetHolders,
}

impl Sabotage {
    pub const ALL: [Self; 29] = [
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
        Self::OneNumber,
        Self::ForgetRefused,
        Self::ForgetHolders,
    ];
}
