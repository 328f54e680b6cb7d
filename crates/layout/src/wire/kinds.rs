//! The closed sets of the protocol.

use crate::closed_set;

closed_set! {
    /// What a segment is for. Names of different kinds do not meet: a region and a port may share a name.
    pub enum SegmentKind {
        /// A heap with named objects.
        Region = 1 "region",
        /// A bounded channel.
        Port = 2 "port",
        /// A data set that one member publishes version by version; the publisher makes its memory.
        Series = 3 "series",
        /// The memory of an item.
        Item = 4 "item",
    }
}

closed_set! {
    /// What to do about a name that is, or is not, there. The C header counts these from 0.
    pub enum OpenMode {
        /// `EXISTS` if it is there.
        CreateOnly = 1 "create_only",
        /// `NOT_FOUND` if it is not there; the only mode that waits.
        OpenOnly = 2 "open_only",
        /// Open it, or create it if it is not there.
        OpenOrCreate = 3 "open_or_create",
        /// Remove what has the name, then create.
        Recreate = 4 "recreate",
    }
}

closed_set! {
    /// What `Remove` does about an object that members have open.
    pub enum InUse {
        /// Take the name away; the members keep the object. A series that is being published is refused.
        Keep = 1 "keep",
        /// Refuse, and say which members have it open.
        Refuse = 2 "refuse",
        /// As `Keep`, also for a series that is being published.
        Force = 3 "force",
    }
}

closed_set! {
    /// What a `List` request lists.
    pub enum ListOf {
        /// Workflows.
        Workflows = 1 "workflows",
        /// Members.
        Members = 2 "members",
        /// Segments.
        Segments = 3 "segments",
        /// Items.
        Items = 5 "items",
        /// Nodes of the daemon's site.
        Nodes = 6 "nodes",
    }
}

closed_set! {
    /// What is known of a node of the site.
    pub enum NodeState {
        /// It is this one, and it has its lease.
        Here = 1 "here",
        /// It has its lease.
        Joined = 2 "joined",
        /// It is this one, and it has no lease: no name can be claimed, and what is known of others is old.
        CutOff = 3 "cut off",
        /// Its lease has ended.
        Gone = 4 "gone",
    }
}

closed_set! {
    /// What is known of a member's state.
    pub enum MemberState {
        /// Its connection stands.
        Connected = 1 "connected",
        /// Its process lives, its connection went down with the former broker.
        Away = 2 "away",
        /// It left in order.
        Left = 3 "left",
        /// It died.
        Dead = 4 "dead",
    }
}

closed_set! {
    /// How sure a new owner can be that the former one has no access left.
    pub enum ItemLevel {
        /// For tasks that trust each other: no daemon call, no proof. An owner word in shared memory says whose it is.
        Cooperative = 1 "cooperative",
        /// The kernel proves that the old owner let go; else the new owner gets a copy.
        Verified = 2 "verified",
        /// Always fresh pages. Also against what the kernel's proof does not see.
        Strict = 3 "strict",
    }
}

closed_set! {
    /// What becomes of an item whose owner dies.
    pub enum OnDeath {
        /// It stays with its task, and waits for the task to be started again.
        Keep = 1 "keep",
        /// It goes back to the task that made it.
        Return = 2 "return",
        /// It is destroyed.
        Destroy = 3 "destroy",
    }
}

closed_set! {
    /// What is going on with an item.
    pub enum ItemState {
        /// Its owner has it open.
        Held = 1 "held",
        /// Its owner does not have it open, or is still to come.
        Waiting = 2 "waiting",
        /// It is shared for reading.
        Shared = 3 "shared",
        /// It is being copied for its new owner. A former owner still has it open or mapped, or its level is strict.
        Copying = 4 "copying",
    }
}
