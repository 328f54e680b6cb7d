"""What listings and statistics are made of: plain named tuples."""

from typing import NamedTuple


class ObjectInfo(NamedTuple):
    """A named object of a region."""

    name: str
    type: str
    size: int
    offset: int


class WorkflowInfo(NamedTuple):
    """A workflow; bytes, quota 0 = no limit but the node's."""

    name: str
    quota: int
    reserved: int


class MemberInfo(NamedTuple):
    """A member: one process that acts as a task; `progress`: steps done and steps in all, if it reports them."""

    id: int
    workflow: str
    task: str
    rank: int
    pid: int
    uid: int
    connected: bool
    progress: "tuple[int, int] | None"


class SegmentInfo(NamedTuple):
    """A segment: a region, a port, a series or an item's memory; bytes; made at `since`, in seconds since 1970."""

    id: int
    kind: str
    workflow: str
    name: str
    size: int
    reserved: int
    creator: int
    since: float


class Listing(NamedTuple):
    """What the daemon has, as far as the asker may see it."""

    workflows: "list[WorkflowInfo]"
    members: "list[MemberInfo]"
    segments: "list[SegmentInfo]"


for _class in (ObjectInfo, WorkflowInfo, MemberInfo, SegmentInfo, Listing):
    _class.__module__ = "crossdock"


class ItemInfo(NamedTuple):
    """An item: bytes; who owns and who made it ("detect/1", "#7"); for how many seconds the owner has had it."""

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
    """A variable of a series: type name, dtype (None if another language's own), largest shape, order, constants."""

    type: str
    dtype: object
    shape: "tuple[int, ...]"
    order: str
    constants: "dict[str, object]"


VariableInfo.__module__ = "crossdock"
