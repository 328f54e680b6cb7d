//! The closed sets of the protocol.

use crate::closed_set;

closed_set! {
    /// The kind of a segment. Names of different kinds are separate: a region and a port may have the same name.
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
    /// What to do if a name exists, or does not exist. The C header counts these from 0.
    pub enum OpenMode {
        /// Create the object; `EXISTS` if the name exists.
        CreateOnly = 1 "create_only",
        /// Open the object; `NOT_FOUND` if the name does not exist. Only this mode waits.
        OpenOnly = 2 "open_only",
        /// Open the object, or create it if the name does not exist.
        OpenOrCreate = 3 "open_or_create",
        /// Remove the object that has the name, and then create one.
        Recreate = 4 "recreate",
    }
}

closed_set! {
    /// What `Remove` does with an object that members have open.
    pub enum InUse {
        /// Remove the name; the members keep the object. A series that is being published is refused.
        Keep = 1 "keep",
        /// Refuse, and name the members that have the object open.
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
    /// The state of a node of the site, as far as this node knows.
    pub enum NodeState {
        /// This node, which has its lease.
        Here = 1 "here",
        /// Another node, which has its lease.
        Joined = 2 "joined",
        /// This node, which has no lease. No name can be claimed, and what it knows of other nodes is old.
        CutOff = 3 "cut off",
        /// Its lease has ended.
        Gone = 4 "gone",
    }
}

closed_set! {
    /// The state of a member, as far as the daemon knows.
    pub enum MemberState {
        /// Its connection stands.
        Connected = 1 "connected",
        /// The member's process lives; its connection ended with the former broker.
        Away = 2 "away",
        /// The member left in order.
        Left = 3 "left",
        /// It died.
        Dead = 4 "dead",
    }
}

closed_set! {
    /// How sure a new owner can be that the former owner has no access left.
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
    /// What happens to an item whose owner dies.
    pub enum OnDeath {
        /// The item stays with its task, and waits until the task is started again.
        Keep = 1 "keep",
        /// The item goes back to the task that made it.
        Return = 2 "return",
        /// It is destroyed.
        Destroy = 3 "destroy",
    }
}

closed_set! {
    /// The present state of an item.
    pub enum ItemState {
        /// The item's owner has it open.
        Held = 1 "held",
        /// The item's owner does not have it open, or is still to come.
        Waiting = 2 "waiting",
        /// The item is shared for reading.
        Shared = 3 "shared",
        /// The item is being copied for its new owner. A former owner still has it open or mapped, or its level is
        /// strict.
        Copying = 4 "copying",
    }
}
