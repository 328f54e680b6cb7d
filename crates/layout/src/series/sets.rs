//! The closed sets of series.

use crate::closed_set;

closed_set! {
    /// What kind of value an attribute or a constant has; 0 in a value's field: there is none. The C header counts these
    /// from 0.
    pub enum ValueKind {
        /// A signed number.
        I64 = 1 "i64",
        /// An unsigned number.
        U64 = 2 "u64",
        /// A floating-point number.
        F64 = 3 "f64",
        /// Text of at most 63 bytes.
        Text = 4 "string",
    }
}

closed_set! {
    /// What a publish does when the pool is full, cannot grow, and observers hold all the old versions.
    pub enum FullPolicy, default Withhold {
        /// It succeeds with number 0 and withholds the version. The next publish that finds room has its changes.
        Withhold = 0 "withhold",
        /// It fails with `NO_SPACE`. Nothing is lost: the next publish carries the changes too.
        Fail = 1 "fail",
        /// It takes the oldest versions back from their observers. Observers read private copies, which stay. What was not
        /// read by then is `NOT_FOUND`.
        TakeBack = 2 "take_back",
    }
}

closed_set! {
    /// May publishing put other pages at the variables' addresses? Memory that is registered with a device or with the
    /// kernel (RDMA, io_uring, CUDA, a pending `MPI_Irecv`) is the pages that lay there at that time.
    pub enum Pages, default Stay {
        /// No: they stay where they are. (`begin` is the exception that the program makes itself.)
        Stay = 0 "stay",
        /// Yes: nothing is registered. Private copies may be chosen, which need half the memory.
        MayMove = 1 "may_move",
    }
}

closed_set! {
    /// How changes are to be found.
    pub enum Detect, default Auto {
        /// Whatever is cheapest by measurement, chosen anew while the program runs. Pages stay, unless they may move.
        Auto = 0 "auto",
        /// Only what the publisher named as touched.
        Hints = 1 "hints",
        /// Private copies of pages, where pages may move. The unchanged ones are the pool's own, so memory is needed once.
        /// Each publish puts other pages at the variables' addresses.
        PrivateCopies = 2 "private_copies",
        /// The kernel's notes of writes (kernel 6.7; not in docker's default filter).
        WriteProtect = 3 "write_protect",
        /// Everything is copied each time.
        CopyAll = 4 "copy_all",
        /// Everything is compared with the version before. What differs is copied.
        Compare = 5 "compare",
    }
}

closed_set! {
    /// How changes are found at present.
    pub enum Method, default CopyAll {
        /// Everything is copied each time.
        CopyAll = 0 "copy all",
        /// The program said what it touched.
        Hints = 1 "hints",
        /// Private copies of pages, found by `PAGEMAP_SCAN`.
        PrivateCopies = 2 "private copies",
        /// userfaultfd's asynchronous write protection, read off by `PAGEMAP_SCAN`.
        WriteProtect = 3 "write protection",
        /// Written straight into the pool between `begin` and `publish`.
        InPlace = 4 "written in place",
        /// Compared with the version before.
        Compare = 5 "comparison",
    }
}

closed_set! {
    /// How a series' publisher is doing.
    pub enum PublisherState {
        /// It publishes.
        Live = 0 "live",
        /// It ended in order: no version will follow.
        Ended = 1 "ended",
        /// It died: no version of this one will follow. A restarted one makes a series of its own under the same name.
        Died = 2 "died",
    }
}
