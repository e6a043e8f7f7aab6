"""Where policy texts come from: ConfigMaps that are watched, or a folder that is looked at.

A source says what its files are now, whole. Whether they are any good is the reloader's business.
"""

from __future__ import annotations

import base64
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from errno import EINVAL
from os import fsencode
from os.path import realpath
from pathlib import Path
from typing import Final

from engine.clock import Clock
from engine.objects import ConfigMap, Identity, ObjectMeta
from engine.policy.folder import ENDING, TESTS
from engine.text.files import bytes_in

Texts = Mapping[str, "str | bytes"]
_LOOKS: Final = 5
_EVERY_SECONDS: Final = 0.5

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """Who texts come from.

    Attributes:
        title: how messages call it.
        folder: what stands before the names of its files where there are several sources.
        profiles: those that its policies are for, all if there is none.
        tenant: the namespace whose pods its policies are for, empty for all.
        config_map: NAMESPACE/NAME of the ConfigMap that it is, empty for a folder.
    """

    title: str
    folder: str = ""
    profiles: frozenset[str] = frozenset()
    tenant: str = ""
    config_map: str = ""


def source_of(
    namespace: str,
    name: str,
    tenant: str = "",
    *,
    folder: str | None = None,
    profiles: frozenset[str] = frozenset(),
) -> Source:
    """A ConfigMap as a source."""
    key = f"{namespace}/{name}"
    folder = f"{key}/" if folder is None else folder
    return Source(f"ConfigMap {key}", folder, profiles, tenant, key)


Offer = Callable[[Texts | None, tuple[str, ...]], None]
"""Takes the files of a source by name (None: it is gone), and what is there and is no policy."""


@dataclass(eq=False)
class ConfigMapSources:
    """The ConfigMaps of a watch, each a source; each key NAME.policy is a file. A handler of it.

    `source_of` says which one an object is; None: it is not to be read. `offer` takes what `Offer`
    does of a source, and the UID of its ConfigMap. `leave` takes a source that is selected no more,
    but for the last one where it `keeps` that one: it is gone, and its rules stay until another is
    selected. `synced` is told when those that there are at the start were told, and how many. One
    that is `named` is missed where it is not among them.
    """

    source_of: Callable[[ObjectMeta], Source | None]
    offer: Callable[[Source, Texts | None, tuple[str, ...], str], None]
    leave: Callable[[Source], None]
    synced: Callable[[int], None] = lambda _: None
    keeps: Callable[[Source], bool] = lambda _: True
    named: Source | None = None

    def __post_init__(self) -> None:
        self._sources = {} if self.named is None else {self.named.config_map: self.named}
        self._missed = self.named

    def on_add(self, config_map: ConfigMap) -> None:
        """One is there, or is selected."""
        source = self._known(config_map.metadata) or self.source_of(config_map.metadata)
        if source is not None:
            self._sources[source.config_map] = source
            self._look(source, None, config_map)
            missed, self._missed = self._missed, None
            if missed is not None and missed != source:
                self._drop(missed)

    def _known(self, meta: ObjectMeta | Identity) -> Source | None:
        return self._sources.get(f"{meta.namespace}/{meta.name}")

    def on_update(self, old: ConfigMap, new: ConfigMap) -> None:
        """One changed; only a change of its files counts."""
        source = self._known(new.metadata)
        if source is not None:
            self._look(source, old, new)

    def _look(self, source: Source, old: ConfigMap | None, new: ConfigMap) -> None:
        files, names = files_of(new), passed_over(new)
        before, known = (None, ()) if old is None else (files_of(old), passed_over(old))
        for name in sorted({*names} - {*known}):
            _LOG.warning(
                "%s: key %s is skipped: a policy's key ends in .policy; call it %s",
                source.title,
                name,
                f"{name.partition('.')[0] or 'NAME'}{ENDING}",
            )
        # Without any policy, what is there instead is all that can be told of it.
        if files != before or (not files and names != known):
            self.offer(source, files, names, new.metadata.uid)

    def on_delete(self, config_map: ConfigMap) -> None:
        """One is gone, or has lost the label."""
        source = self._known(config_map.metadata)
        if source is None:
            return
        if len(self._sources) == 1 and self.keeps(source):
            self._missed = source
            self.offer(source, None, (), config_map.metadata.uid)
        else:
            self._drop(source)

    def _drop(self, source: Source) -> None:
        del self._sources[source.config_map]
        _LOG.warning("%s is no longer selected: its rules are withdrawn", source.title)
        self.leave(source)

    def on_unreadable(self, meta: Identity, reason: str) -> None:  # noqa: ARG002 - the protocol's
        """The object itself is broken, which no API server lets happen: as if it were gone."""
        source = self._known(meta)
        if source is not None:
            self.offer(source, None, (), meta.uid)

    def on_synced(self) -> None:
        """The first list is in; a selection without any ConfigMap has no rules."""
        if self.named is not None and self._missed is not None:
            self.offer(self.named, None, (), "")
        self.synced(len(self._sources))


def files_of(config_map: ConfigMap) -> dict[str, str | bytes]:
    """The policy files in a ConfigMap; what kubectl found to be no UTF-8 is there as bytes."""
    found: dict[str, str | bytes] = dict(config_map.data or {})
    for name, coded in (config_map.binary_data or {}).items():
        with contextlib.suppress(ValueError):  # no API server lets that happen
            found[name] = base64.b64decode(coded)
    return {name: text for name, text in sorted(found.items()) if is_policy(name)}


def decoded(files: Texts) -> dict[str, str]:
    """Texts that could be compiled: none is anything but UTF-8."""
    return {name: t if isinstance(t, str) else t.decode("utf-8") for name, t in files.items()}


def passed_over(config_map: ConfigMap) -> tuple[str, ...]:
    """What is in a ConfigMap and is no policy by its name."""
    names = sorted({**(config_map.data or {}), **(config_map.binary_data or {})})
    return tuple([one for one in names if not is_policy(one) and not one.endswith(TESTS)])


def is_policy(name: str) -> bool:
    """Whether a key or file is a policy by its name."""
    return name.endswith(ENDING) and name != ENDING


class FolderSource:
    """A folder of NAME.policy files, looked at every so often."""

    def __init__(self, folder: Path, offer: Offer, clock: Clock) -> None:
        self._folder = folder
        self._offer = offer
        self._clock = clock
        self.due = clock.monotonic()
        """When it looks again."""
        self._last: tuple[Texts | None, tuple[str, ...]] | None = None

    def step(self, deadline: float) -> bool:  # noqa: ARG002 - reading a folder is one step
        """Looks if it is time; implements `scheduler.Background`."""
        if self._clock.monotonic() >= self.due:
            self.due = self._clock.monotonic() + _EVERY_SECONDS
            self.look()
        return False

    def look(self) -> None:
        """Offers the files, or why there are none, if that is not what it was."""
        found = policies_in(self._folder)
        if found != self._last:
            self._last = found
            self._offer(*found)


def policies_in(folder: Path) -> tuple[dict[str, str | bytes] | None, tuple[str, ...]]:
    """The policy files in a folder; None: it is gone, or is being replaced, or the system says why.

    Mounted ConfigMaps and releases are replaced by turning a link: files of two versions are never
    mixed. Where one vanishes meanwhile, all are looked at again. Bytes of a name that
    are no text are written in digits: names go into messages, hashes and JSON.
    """
    why: tuple[str, ...] = ()
    for _ in range(_LOOKS):
        try:
            before = _version(folder)
            files: dict[str, str | bytes] = {
                fsencode(path.name).decode(errors="backslashreplace"): _read(path)
                for path in _policies_of(folder)
            }
        except FileNotFoundError:
            why = ()
        except OSError as failed:
            why = (f"{failed.filename}: {failed.strerror}",)
        else:
            why = ()
            if _version(folder) == before:
                return files, why
    return None, why


def _policies_of(folder: Path) -> list[Path]:
    """What is called as a policy is, but for folders and links that lead nowhere."""
    there = [path for path in sorted(folder.iterdir()) if is_policy(path.name)]
    return [path for path in there if path.exists() and not path.is_dir()]


def _read(path: Path) -> bytes:
    if not path.is_file():  # a pipe or a device, which would be waited for
        raise OSError(EINVAL, "it is not a regular file", str(path))
    return bytes_in(path)


def _version(folder: Path) -> tuple[str, str]:
    """Where the links lead that a replacement turns: the folder itself, and the kubelet's.

    Not by `Path.resolve`, to which links in a circle are an error of their own.
    """
    return realpath(folder), realpath(folder / "..data")
