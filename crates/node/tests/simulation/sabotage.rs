//! The bugs that are planted to see that they are found.

/// A bug in the layer between the broker and the simulated kernel and clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// Records of segments are not written down.
    ForgetSegments,
    /// Records of reserving are not written down.
    ForgetReserves,
    /// A workflow's end is not written down.
    ForgetEnds,
    /// Answers are sent before the records that they stand on.
    AnswerFirst,
    /// Removed segments stay with the keeper.
    KeepRemoved,
    /// Endpoints of ended workflows stay open.
    KeepListening,
    /// The dead stay alive in the table.
    KeepTheDead,
    /// A broker that starts again begins to count from its journal's first number.
    CountAgain,
    /// Some answers are sent twice.
    AnswerTwice,
    /// Some answers are not sent.
    LoseAnswers,
    /// Everybody gets a descriptor to write through.
    WritableForAll,
    /// Endpoints are given one grant too many.
    GrantTooMuch,
    /// Workflows are given twice their quota.
    QuotaTwice,
    /// Requests that were done before a restart are done again.
    ForgetOutcomes,
    /// The kernel says of every item that no process has it open.
    ProveAll,
    /// Changes of items' owners are not written down.
    ForgetOwners,
    /// Pin pages are not cleared.
    KeepPins,
    /// Records of pin pages given to observers are not written down.
    ForgetPins,
    /// Publishers are not told of new pin pages.
    TellNoPublisher,
    /// A pin page is taken for one that no endpoint's observers ever had.
    ForgetEndpoints,
    /// Pools can be written by those who observe.
    WritablePools,
    /// Some questions about items' files are never answered. Only [`Broker::check_at_rest`] finds this: no client is
    /// promised that an item ever gets ready.
    LoseVerdicts,
    /// A member that the table does not speak of is taken for dead.
    AbsenceIsDeath,
    /// A member whose connection ended is taken for dead.
    BuryTheCutOff,
    /// The slots of members whose session is over, and which live, are given to others.
    FreeGhosts,
    /// Whatever memory is offered after the keeper's end is taken.
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
