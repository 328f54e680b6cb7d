"""The named tuples that listings and statistics consist of."""

from typing import NamedTuple


class ObjectInfo(NamedTuple):
    """A named object of a region."""

    name: str
    type: str
    size: int
    offset: int


class WorkflowInfo(NamedTuple):
    """A workflow. Sizes are in bytes. A quota of 0 means that only the node's memory is the limit."""

    name: str
    quota: int
    reserved: int


class MemberInfo(NamedTuple):
    """A member: one process that acts as a task. `progress` is the number of steps done and the number of all steps, if
    the process reports them."""

    id: int
    workflow: str
    task: str
    rank: int
    pid: int
    uid: int
    connected: bool
    progress: "tuple[int, int] | None"


class SegmentInfo(NamedTuple):
    """A segment: a region, a port, a series or the memory of an item. Sizes are in bytes. `since`
    is the time when the segment was made, in seconds since 1970."""

    id: int
    kind: str
    workflow: str
    name: str
    size: int
    reserved: int
    creator: int
    since: float


class Listing(NamedTuple):
    """The workflows, members and segments of the daemon that the asking task may see."""

    workflows: "list[WorkflowInfo]"
    members: "list[MemberInfo]"
    segments: "list[SegmentInfo]"


class ItemInfo(NamedTuple):
    """An item. `size` is in bytes. `owner` and `creator` are tasks such as "detect/1" or "#7". `since` is how many seconds
    the owner has had it."""

    key: str
    size: int
    owner: str
    creator: str
    mine: bool
    state: str
    level: str
    on_death: str
    since: float
    readers: int
    waiting: int
    transfers: int
    copies: int


class VariableInfo(NamedTuple):
    """A variable of a series: the name of its type, the dtype (None if only another language has the type), the largest
    shape, the order and the constants."""

    type: str
    dtype: object
    shape: "tuple[int, ...]"
    order: str
    constants: "dict[str, object]"


for _class in (ObjectInfo, WorkflowInfo, MemberInfo, SegmentInfo, Listing, ItemInfo, VariableInfo):
    _class.__module__ = "crossdock"
