//! The closed sets of series.

use crate::closed_set;

closed_set! {
    /// The kind of an attribute's or a constant's value. In a value's field, 0 means that there is no value. The C
    /// header counts the kinds from 0.
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
    /// What a publish does if the pool is full, the pool cannot grow, and observers hold all old versions.
    pub enum FullPolicy, default Withhold {
        /// The publish succeeds with number 0 and withholds the version. The next publish that finds room carries its
        /// changes.
        Withhold = 0 "withhold",
        /// The publish fails with `NO_SPACE`. Nothing is lost: the next publish carries the changes too.
        Fail = 1 "fail",
        /// The publish takes the oldest versions back from their observers. Observers read private copies, which stay.
        /// Asking for bytes that were not read by then gives `NOT_FOUND`.
        TakeBack = 2 "take_back",
    }
}

closed_set! {
    /// May publishing put other pages at the variables' addresses? Memory that is registered with a device or with the
    /// kernel (RDMA, io_uring, CUDA, a pending `MPI_Irecv`) means the pages that lay there at the time of registering.
    pub enum Pages, default Stay {
        /// No: the pages stay. Only `begin` moves them, which the program calls itself.
        Stay = 0 "stay",
        /// Yes: no memory is registered. Private copies may be chosen, which need half the memory.
        MayMove = 1 "may_move",
    }
}

closed_set! {
    /// How a publisher finds what changed.
    pub enum Detect, default Auto {
        /// By the method that measurements show to be cheapest. It is chosen anew while the program runs. Pages stay, unless they
        /// may move.
        Auto = 0 "auto",
        /// Only what the publisher named as touched counts as changed.
        Hints = 1 "hints",
        /// By private copies of pages, if pages may move. Unchanged pages are the pool's own, so the data need memory
        /// only once. Each publish puts other pages at the variables' addresses.
        PrivateCopies = 2 "private_copies",
        /// By the kernel's notes of writes. This needs Linux 6.7, and docker's default filter forbids it.
        WriteProtect = 3 "write_protect",
        /// Everything is copied each time.
        CopyAll = 4 "copy_all",
        /// Everything is compared with the version before. What differs is copied.
        Compare = 5 "compare",
    }
}

closed_set! {
    /// The method by which a publisher finds changes at present.
    pub enum Method, default CopyAll {
        /// Everything is copied each time.
        CopyAll = 0 "copy all",
        /// The program said what it touched.
        Hints = 1 "hints",
        /// Private copies of pages, found by `PAGEMAP_SCAN`.
        PrivateCopies = 2 "private copies",
        /// userfaultfd's asynchronous write protection, read by `PAGEMAP_SCAN`.
        WriteProtect = 3 "write protection",
        /// The program wrote straight into the pool between `begin` and `publish`.
        InPlace = 4 "written in place",
        /// The data are compared with the version before.
        Compare = 5 "comparison",
    }
}

closed_set! {
    /// The state of a series' publisher.
    pub enum PublisherState {
        /// It publishes.
        Live = 0 "live",
        /// The publisher ended in order: no version will follow.
        Ended = 1 "ended",
        /// The publisher died: no version of it will follow. A restarted publisher makes a series of its own under the
        /// same name.
        Died = 2 "died",
    }
}
