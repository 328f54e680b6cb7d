//! The closed sets whose numbers are fields of messages between clients and the daemon.

use crate::closed_set;

closed_set! {
    /// The kind of a segment. Names of different kinds are independent: a region and a port may have the same name.
    pub enum SegmentKind {
        /// A heap with named objects.
        Region = 1 "region",
        /// A bounded channel between tasks.
        Port = 2 "port",
        /// A data set that one member publishes version by version. The publishing member makes the memory of the
        /// series.
        Series = 3 "series",
        /// The memory of an item.
        Item = 4 "item",
    }
}

closed_set! {
    /// What to do if the name of the object exists already, or does not exist. In the C header, the number of each mode
    /// is smaller by 1 than here.
    pub enum OpenMode {
        /// Create the object; `EXISTS` if the name exists.
        CreateOnly = 1 "create_only",
        /// Open the object; `NOT_FOUND` if the name does not exist. Only a request with this mode waits for the name.
        OpenOnly = 2 "open_only",
        /// Open the object, or create it if the name does not exist.
        OpenOrCreate = 3 "open_or_create",
        /// Remove the object if the name exists, and then create a new object.
        Recreate = 4 "recreate",
    }
}

closed_set! {
    /// What `Remove` does with an object that members have open.
    pub enum InUse {
        /// Remove the name; the members keep the object. The removal of a series is refused while a member publishes
        /// it.
        Keep = 1 "keep",
        /// Refuse the removal, and name the members that have the object open.
        Refuse = 2 "refuse",
        /// Remove the name, also that of a series that a member publishes; the members keep the object.
        Force = 3 "force",
        /// Refuse the removal as `Refuse` does. Also refuse it unless the asking member made the object and the daemon
        /// knows that no other member has used it. Items and series are never removed in this way.
        Unused = 4 "unused",
    }
}

closed_set! {
    /// What a `List` request lists.
    pub enum ListOf {
        /// The workflows on this node.
        Workflows = 1 "workflows",
        /// The members on this node.
        Members = 2 "members",
        /// The segments on this node.
        Segments = 3 "segments",
        /// The items in the workflows on this node.
        Items = 5 "items",
        /// The nodes of the daemon's site.
        Nodes = 6 "nodes",
    }
}

closed_set! {
    /// The state of a node of the site, as far as the answering node knows.
    pub enum NodeState {
        /// The answering node itself, which has its lease in the catalog.
        Here = 1 "here",
        /// Another node, which has its lease in the catalog.
        Joined = 2 "joined",
        /// The answering node itself, which has lost its lease. It cannot claim names, and what it knows of other nodes
        /// may be old.
        CutOff = 3 "cut off",
        /// Another node, whose lease has ended.
        Gone = 4 "gone",
    }
}

closed_set! {
    /// The state of a member, as far as the daemon knows.
    pub enum MemberState {
        /// The member has a connection to the daemon.
        Connected = 1 "connected",
        /// The member's process lives, but its connection ended with the former broker, and the member has not
        /// connected again yet.
        Away = 2 "away",
        /// The session of the member was ended, by the member itself (`Bye`) or by the daemon because the member broke
        /// the protocol.
        Left = 3 "left",
        /// The member died.
        Dead = 4 "dead",
    }
}

closed_set! {
    /// How a new owner of an item can be sure that the former owner has no access to the item any more.
    pub enum ItemLevel {
        /// For tasks that trust each other: no call to the daemon, and no proof. A transfer only changes a word in
        /// shared memory, which names the owner.
        Cooperative = 1 "cooperative",
        /// The former owner provably closed the item, or the new owner gets a copy.
        Verified = 2 "verified",
        /// The new owner always gets fresh pages. This level also excludes access that the kernel's proof of the level
        /// `Verified` cannot see.
        Strict = 3 "strict",
    }
}

closed_set! {
    /// What happens to an item whose owner dies.
    pub enum OnDeath {
        /// The item stays with its task, until the task is started again.
        Keep = 1 "keep",
        /// The item goes back to the task that made it.
        Return = 2 "return",
        /// The item is destroyed.
        Destroy = 3 "destroy",
    }
}

closed_set! {
    /// The present state of an item.
    pub enum ItemState {
        /// The item's owner has it open.
        Held = 1 "held",
        /// The item's owner does not have it open, or does not exist yet.
        Waiting = 2 "waiting",
        /// The item is shared for reading.
        Shared = 3 "shared",
        /// The item is being copied for its new owner. The reason is that a former owner still has the item open or
        /// mapped, or that the item's level is strict.
        Copying = 4 "copying",
    }
}
