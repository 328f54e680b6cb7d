//! The closed sets that describe series: kinds of values, policies, methods, states.

use crate::closed_set;

closed_set! {
    /// The kind of the value of an attribute or a constant. In a stored value, the kind 0 means that there is no value.
    /// In the C header, the number of each kind is smaller by 1 than here.
    pub enum ValueKind {
        /// A signed integer of 64 bits.
        I64 = 1 "i64",
        /// An unsigned integer of 64 bits.
        U64 = 2 "u64",
        /// A floating-point number of 64 bits.
        F64 = 3 "f64",
        /// Text of at most 63 bytes.
        Text = 4 "string",
    }
}

closed_set! {
    /// What a publish does if all three are true: the pool is full, it cannot grow, and observers hold all old
    /// versions.
    pub enum FullPolicy, default Withhold {
        /// The publish returns 0 as the version's number, and the version is withheld. The next publish that finds room
        /// contains the changes of the withheld version.
        Withhold = 0 "withhold",
        /// The publish fails with `NO_SPACE`. No change is lost, because the next publish contains the changes.
        Fail = 1 "fail",
        /// The publish takes the oldest versions back from their observers. Under this policy, observers read private
        /// copies of versions, which do not change afterwards. If an observer asks for bytes of a version that was
        /// taken back, and has not read them yet, it gets `NOT_FOUND`.
        TakeBack = 2 "take_back",
    }
}

closed_set! {
    /// Whether a publish may put other pages at the variables' addresses. If memory is registered with a device or with
    /// the kernel (RDMA, io_uring, CUDA, a pending `MPI_Irecv`), the device goes on using the pages that were at the
    /// addresses when the memory was registered.
    pub enum Pages, default Stay {
        /// The pages at the variables' addresses stay. Other pages come to these addresses only if the program calls
        /// `begin`.
        Stay = 0 "stay",
        /// A publish may change the pages, because no memory is registered. In that case, the library may choose the
        /// method of private copies, which needs half the memory of the other methods.
        MayMove = 1 "may_move",
    }
}

closed_set! {
    /// How a publisher finds the bytes that changed since the last version.
    pub enum Detect, default Auto {
        /// By the method that the library has measured to be cheapest. The choice may change while the program runs. A
        /// method that moves pages is chosen only if pages may move.
        Auto = 0 "auto",
        /// Only bytes that the program named as touched count as changed.
        Hints = 1 "hints",
        /// By private copies of pages, if pages may move. The variables' unchanged pages are pages of the pool, so the
        /// data are in memory only once. Each publish puts other pages at the variables' addresses.
        PrivateCopies = 2 "private_copies",
        /// By write protection, with which the kernel notes writes. This method needs Linux 6.7, and docker's default
        /// seccomp filter forbids it.
        WriteProtect = 3 "write_protect",
        /// Without finding changes: each publish copies everything.
        CopyAll = 4 "copy_all",
        /// By comparing everything with the last version. A publish copies only the chunks that differ.
        Compare = 5 "compare",
    }
}

closed_set! {
    /// The method by which a publisher finds changes at present.
    pub enum Method, default CopyAll {
        /// Each publish copies everything.
        CopyAll = 0 "copy all",
        /// The program names by hints the bytes that it touched.
        Hints = 1 "hints",
        /// Private copies of pages; `PAGEMAP_SCAN` finds the pages that were written.
        PrivateCopies = 2 "private copies",
        /// Asynchronous write protection of userfaultfd; `PAGEMAP_SCAN` reads which pages were written.
        WriteProtect = 3 "write protection",
        /// The program wrote straight into the pool between `begin` and `publish`.
        InPlace = 4 "written in place",
        /// The data are compared with the last version.
        Compare = 5 "comparison",
    }
}

closed_set! {
    /// The state of a series' publisher.
    pub enum PublisherState {
        /// The publisher is alive and may publish further versions.
        Live = 0 "live",
        /// The publisher has ended the series itself: no further version will follow.
        Ended = 1 "ended",
        /// The publisher died: no further version will follow. If it is restarted, it makes a new series under the same
        /// name.
        Died = 2 "died",
    }
}
