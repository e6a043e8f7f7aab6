"""Who uses how much of which quota: accounts that follow pods, and the quotas a pod finds.

An account counts a pod from the cycle that gave it a node until it is gone: assumed, bound and
terminating. ElasticQuota objects are those of their namespace; of several there the first by name
counts.

Accounts are sums brought up to date pod by pod (`PodColumns.ledger`), as long as whose quota a pod
is of follows from the pod and its namespace. Otherwise (a left side that reads the time) the pods
are summed up anew, by columns, for each snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct

from dsl.collective import Amounts, Limits, Pool, QuotaUse, pool_of
from dsl.quantities import parse_quantity
from dsl.schema import request_unit
from dsl.types import is_missing, scale_of
from engine.collective.quotas import is_over_minimum, over_maximum, over_minimum_with_pod
from engine.framework.snapshot import Nominations, Snapshot
from engine.objects import ResourceList
from engine.objects.workloads import ElasticQuota
from engine.pods.podinfo import PodInfo

KIND: Final = ElasticQuota.__name__
Key = str | float
Owner = Callable[[PodInfo], Key | None]
Sums = Callable[[Sequence[str]], Mapping[Key, Amounts]]
"""What pods with a node use of some resources, by owner."""
_NOTHING: Final[Amounts] = {}
MOST_NAMED: Final = 64
"""Resources that are read of an object's list, the first as the server has them."""


class Account:
    """What the pods with a node use, by owner. Implements `framework.snapshot.Ledger`."""

    def __init__(self, owner: Owner, *, of_namespaces: bool) -> None:
        self._owner = owner
        self.of_namespaces = of_namespaces
        self.used: dict[Key, dict[str, int]] = {}
        self._pods: dict[Key, int] = {}
        self.limits: Mapping[Key, Limits] | None = None
        """Whose use `pool` sums up; None: everybody's."""
        self.pool: dict[str, int] = {}
        self._version = -1
        self._promised: dict[Key, dict[int, dict[str, int]]] = {}

    def count(self, pod: PodInfo, sign: int) -> None:
        """A pod came (1) or went (-1)."""
        key = self._owner(pod)
        if key is None:
            return
        _add(self.used.setdefault(key, {}), pod.requests, sign)
        if self.limits is None or key in self.limits:
            _add(self.pool, pod.requests, sign)
        self._pods[key] = self._pods.get(key, 0) + sign
        if not self._pods[key]:
            del self._pods[key], self.used[key]

    def limit(self, limits: Mapping[Key, Limits]) -> None:
        """From now on these are the quotas that there are. Linear in the owners."""
        self.limits = limits
        self.pool = {}
        for key in self.used.keys() & limits.keys():
            _add(self.pool, self.used[key])

    def promised(
        self, key: Key | None, limits: Mapping[Key, Limits], pod: PodInfo, to: Nominations
    ) -> tuple[Amounts, Mapping[Key, Amounts]]:
        """What nominated pods will take: of the pod's own quota before it, and of others."""
        if self._version != to.version:
            promised = dict[Key, dict[int, dict[str, int]]]()
            for one in to:
                theirs = self._owner(one)
                if theirs is not None:
                    each = promised.setdefault(theirs, {})
                    _add(each.setdefault(to.ranks[one.uid], {}), one.requests)
            self._version, self._promised = to.version, promised
        before, others = dict[str, int](), dict[Key, dict[str, int]]()
        for theirs, each in self._promised.items():
            for priority, amounts in each.items() if theirs in limits else ():
                if theirs != key:
                    _add(others.setdefault(theirs, {}), amounts)
                elif priority >= to.ranks.get(pod.uid, pod.priority):
                    _add(before, amounts)
        if key is not None and to.node_of(pod.uid):
            _add(before, pod.requests, -1)  # itself
        return before, others


class _Everyone(Mapping[Key, Limits]):
    """The same limits for all owners that pods name."""

    def __init__(self, limits: Limits, used: Mapping[Key, Amounts], key: Key | None) -> None:
        self._limits = limits
        self._used = used
        self._key = key

    def __getitem__(self, key: Key) -> Limits:
        if key != self._key and key not in self._used:
            raise KeyError(key)
        return self._limits

    def __iter__(self) -> Iterator[Key]:
        yield from self._used
        if self._key is not None and self._key not in self._used:
            yield self._key

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Book:
    """The accounts of one quota, or of all ElasticQuota objects.

    Args:
        name: tells it from all others.
        own: the limits that it gives to every owner itself; None: objects have them.
        of_namespaces: whether `owner` looks at the pod's namespace, not at its name alone.
    """

    def __init__(self, name: str, own: Limits | None, *, of_namespaces: bool = False) -> None:
        self._name = name
        self._own = own
        self._of_namespaces = of_namespaces
        self._objects: tuple[object, int, _Objects] | None = None

    def use(
        self, pod: PodInfo, snapshot: Snapshot, owner: Owner, sums: Sums | None = None
    ) -> QuotaUse:
        """The quotas as the pod finds them, and what it would add.

        A lookup, but for pods that are promised a node, and with `sums`, which are asked where
        accounts do not follow pods.
        """
        key = owner(pod)
        limits, used, pool = self.standing(key, snapshot, owner, sums, pod.requests)
        own = key if key is not None and key in limits else None
        account = Account(owner, of_namespaces=False) if sums else self.account(snapshot, owner)
        before, nominated = account.promised(own, limits, pod, snapshot.nominations)
        return QuotaUse(
            key=own,
            limits=limits,
            used=used,
            pool=pool,
            asked=pod.requests,
            before=before,
            nominated=nominated,
        )

    def standing(
        self,
        key: Key | None,
        snapshot: Snapshot,
        owner: Owner,
        sums: Sums | None = None,
        asked: Amounts = _NOTHING,
    ) -> tuple[Mapping[Key, Limits], Mapping[Key, Amounts], Pool]:
        """The limits, what is used of each, and what is used and guaranteed of all together.

        The latter of what somebody uses or has asked for: quotas may name much more.
        """
        if sums is not None:
            return self._summed(key, snapshot, sums)
        account = self.account(snapshot, owner)
        if self._own is None:
            objects = self._quotas(snapshot)
            if account.limits is not objects.limits:
                account.limit(objects.limits)
            every = objects.minimum
            minimum = {name: every[name] for name in sorted({*account.pool, *asked} & every.keys())}
            return objects.limits, account.used, Pool(account.pool, minimum)
        owners = len(account.used) + (key is not None and key not in account.used)
        guaranteed = {name: least * owners for name, least in self._own.minimum.items()}
        limits = _Everyone(self._own, account.used, key)
        return limits, account.used, Pool(account.pool, guaranteed)

    def _summed(
        self, key: Key | None, snapshot: Snapshot, sums: Sums
    ) -> tuple[Mapping[Key, Limits], Mapping[Key, Amounts], Pool]:
        objects = self._quotas(snapshot).limits
        every = objects.values() if self._own is None else (self._own,)
        used = sums(sorted({name for one in every for name in (*one.minimum, *one.maximum)}))
        limits = objects if self._own is None else _Everyone(self._own, used, key)
        return limits, used, pool_of(limits, used)

    def account(self, snapshot: Snapshot, owner: Owner) -> Account:
        """The sums over pods, of all snapshots of a cluster the same."""
        found = snapshot.pods.ledger(*self._made(owner))
        assert isinstance(found, Account)
        return found

    def prepare(self, snapshot: Snapshot, owner: Owner) -> Iterator[None]:
        """Makes `account` in steps."""
        return snapshot.pods.prepare_ledger(*self._made(owner))

    def _made(self, owner: Owner) -> tuple[str, Callable[[], Account]]:
        return self._name, lambda: Account(owner, of_namespaces=self._of_namespaces)

    def _quotas(self, snapshot: Snapshot) -> _Objects:
        known = self._objects
        there, version = snapshot.objects(KIND), snapshot.objects_version(KIND)
        if known is None or known[0] is not there or known[1] != version:
            before = {} if known is None else known[2].read
            known = self._objects = there, version, _objects(there, before)
        return known[2]


def _add(to: dict[str, int], amounts: Mapping[str, int], sign: int = 1) -> None:
    """What comes to nothing is left out: names of resources come and go."""
    for name, amount in amounts.items():
        total = to.get(name, 0) + sign * amount
        if total:
            to[name] = total
        else:
            to.pop(name, None)


# ---- objects -------------------------------------------------------------------------------------


_Read = Mapping[Key, tuple[ElasticQuota, Limits]]


class _Objects(Struct, frozen=True, eq=False):
    """The ElasticQuotas by namespace, and what they guarantee together."""

    read: _Read
    limits: Mapping[Key, Limits]
    minimum: Amounts


def _objects(there: Mapping[str, ElasticQuota], before: _Read) -> _Objects:
    first: dict[Key, ElasticQuota] = {}
    for _, one in sorted(there.items()):
        first.setdefault(one.metadata.namespace, one)
    read = dict[Key, tuple[ElasticQuota, Limits]]()
    for key, one in first.items():
        known = before.get(key)
        if known is None or known[0] is not one:
            known = one, Limits(amounts_of(one.spec.min), amounts_of(one.spec.max))
        read[key] = known
    limits, minimum = {key: own for key, (_, own) in read.items()}, dict[str, float]()
    for own in limits.values():
        for name, least in own.minimum.items():
            minimum[name] = minimum.get(name, 0.0) + least
    return _Objects(read, limits, minimum)


def amounts_of(given: ResourceList | None) -> Amounts:
    """Quantities in base units of MOST_NAMED resources; what cannot be read is not there.

    Nobody is guaranteed less than nothing, which would be taken from what others are.
    """
    read = {
        name: parse_quantity(str(text)) * scale_of(request_unit(name))
        for name, text in islice((given or {}).items(), MOST_NAMED)
    }
    return {name: max(amount, 0.0) for name, amount in read.items() if not is_missing(amount)}


#: The ElasticQuota of a pod's namespace, as `quota.*` and `quota: by pod.namespace` read it.
BY_NAMESPACE: Final = "quota of the namespace"


def namespace_of(pod: PodInfo) -> str:
    """The owner of a pod where quotas are those of namespaces."""
    return pod.namespace


# ---- what policies read of it --------------------------------------------------------------------

_BOOK: Final = Book(BY_NAMESPACE, None)


def prepare(snapshot: Snapshot) -> Iterator[None]:
    """Makes in steps what the fields of quotas are read of."""
    return _BOOK.prepare(snapshot, namespace_of)


def quota_name(pod: PodInfo, snapshot: Snapshot) -> str | None:
    """`quota.name`: the first by name of the pod's namespace."""
    there = snapshot.objects_by(KIND, "namespace", lambda one: str(one.metadata.namespace))
    return min((one.metadata.name for one in there.get(pod.namespace, {}).values()), default=None)


def quota_amounts(name: str, pod: PodInfo, snapshot: Snapshot) -> tuple[tuple[str, float], ...]:
    """`quota.min`, `quota.max` and `quota.used` by resource, in base units."""
    use = _BOOK.use(pod, snapshot, namespace_of)
    if use.key is None:
        return ()
    own = use.limits[use.key]
    if name == "used":
        used = use.used.get(use.key, {})
        return tuple((one, float(used.get(one, 0))) for one in sorted({*own.minimum, *own.maximum}))
    return tuple(sorted((own.minimum if name == "min" else own.maximum).items()))


def quota_flag(name: str, pod: PodInfo, snapshot: Snapshot) -> bool:
    """`quota.over_max_with_pod` and `quota.over_min_with_pod`."""
    use = _BOOK.use(pod, snapshot, namespace_of)
    return bool(over_maximum(use) if name == "over_max_with_pod" else over_minimum_with_pod(use))


def over_minimum(snapshot: Snapshot) -> frozenset[str]:
    """The namespaces whose ElasticQuota uses more than its minimum: `it.quota.over_min`."""
    limits, used, pool = _BOOK.standing(None, snapshot, namespace_of)
    return frozenset(
        str(key)
        for key, own in limits.items()
        if is_over_minimum(used.get(key, _NOTHING), own, pool.minimum)
    )
