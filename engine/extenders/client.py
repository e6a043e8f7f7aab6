"""HTTP extenders in their order: a pod and nodes in, an `Opinion` out. Decides nothing.

One that may not fail and does ends the cycle; one that may (`ignorable`) is passed over. Scores of
one that fails are left out, whichever it is. No redirects, and no second try after an answer; every
failure names the address.

Source: kubernetes pkg/scheduler schedule_one.go: findNodesThatPassExtenders, prioritizeNodes;
framework/preemption, callExtenders; extender.go, IsInterested, makeTransport, send; client-go
transport.TLSConfigFor.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from engine import __version__
from engine.channels import Broken, Channels, Late, NotConnected, header_lines
from engine.configuration.forms import seconds
from engine.configuration.scheduler import ExtenderDocument, ExtenderTLS
from engine.configuration.settings import ConfigError
from engine.extenders import messages
from engine.extenders.messages import BadAnswer, Victims
from engine.framework.opinion import Opinion, Scored
from engine.pods.podinfo import PodInfo
from engine.text.display import cause, one_line
from engine.tls import load_pair, trusting

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST_BYTES: Final = 64 << 20
"""Of an answer: 5,000 nodes are about 30 MB when they are sent back whole."""
_OK: Final = 200
_LINES: Final = header_lines(
    {
        "User-Agent": f"berth/{__version__}",
        "Content-Type": "application/json",
        "Accept": "application/json",
    }
)


class ExtenderError(Exception):
    """An extender was asked and gave no answer that can be used; one line with its address."""


class Extender:
    """One of them; used inside one event loop."""

    def __init__(self, document: ExtenderDocument) -> None:
        """Reads its certificates.

        Raises:
            ConfigError: they cannot be used.
        """
        self.document = document
        self.url = document.url_prefix.rstrip("/")
        self._seconds = seconds(document.http_timeout)
        tls = document.tls_config or ExtenderTLS()
        self.channels = Channels(
            self.url,
            _context(self.url, document, tls) if self.url.startswith("https:") else None,
            tls.server_name or None,
            most_body_bytes=MOST_BYTES,
        )
        self._managed = frozenset(one.name for one in document.managed_resources)

    def wants(self, pod: PodInfo) -> bool:
        """Whether it is asked about the pod: all pods, or those with a resource that it manages."""
        if not self._managed:
            return True
        spec = pod.pod.spec
        for container in (*(spec.containers or ()), *(spec.init_containers or ())):
            asked = container.resources
            for amounts in () if asked is None else (asked.requests, asked.limits):
                if amounts and not self._managed.isdisjoint(amounts):
                    return True
        return False

    async def ask(
        self,
        verb: str,
        body: bytes,
        read: Callable[[bytes], T],
        *,
        may_leave: Callable[[], bool] | None = None,
    ) -> T:
        """One POST; `read` makes something of the answer's body.

        `may_leave` is of what changes something: it is asked when the body is about to leave, and
        that leaves once. Anything else may be sent again where a connection proves to be closed.

        Raises:
            ExtenderError: there is no answer in time, or none that `read` understands.
        """
        where = f"extender {self.url}/{verb}"
        try:
            async with asyncio.timeout(self._seconds):
                answer = await self.channels.request(
                    "POST",
                    f"/{verb}",
                    _LINES,
                    body,
                    again=may_leave is None,
                    silence=self._seconds,
                    may_leave=may_leave,
                )
        except TimeoutError as error:
            raise ExtenderError(f"{where}: no answer within {self._seconds:g} s") from error
        except (NotConnected, Broken, Late, OSError) as error:
            why = cause(error.cause if isinstance(error, NotConnected) else error)
            raise ExtenderError(f"{where}: {why}") from error
        if answer.status != _OK:
            raise ExtenderError(f"{where}: it answers HTTP {answer.status}")
        try:
            return read(answer.body)
        except BadAnswer as bad:
            raise ExtenderError(f"{where}: {bad}") from bad

    async def filter(
        self, pod: bytes, names: Sequence[str], nodes: Mapping[str, bytes]
    ) -> messages.Filtered:
        """The nodes that it leaves.

        Raises:
            ExtenderError: it does not say.
        """
        by_name = self.document.node_cache_capable
        return await self.ask(
            self.document.filter_verb,
            messages.about(pod, names, None if by_name else nodes),
            lambda body: messages.filtered(body, names, by_name=by_name),
        )

    async def score(self, pod: bytes, names: Sequence[str], nodes: Mapping[str, bytes]) -> Scored:
        """What it gives the nodes; nothing if it does not say."""
        document = self.document
        scores: dict[str, int] = {}
        try:
            scores = await self.ask(
                document.prioritize_verb,
                messages.about(pod, names, None if document.node_cache_capable else nodes),
                lambda body: messages.scored(body, names, document.weight),
            )
        except ExtenderError as error:
            log.warning("%s; its scores are left out", error)
        return Scored(self.url, document.weight, scores)

    async def agree(self, pod: bytes, victims: Victims) -> dict[str, list[str]]:
        """The nodes that it leaves, and the victims there.

        Raises:
            ExtenderError: it does not say.
        """
        document = self.document
        return await self.ask(
            document.preempt_verb,
            messages.about_victims(pod, victims, by_uid=document.node_cache_capable),
            lambda body: messages.agreed(body, victims),
        )


class Extenders:
    """All extenders of a process."""

    def __init__(self, documents: Sequence[ExtenderDocument]) -> None:
        """In the order in which they are called.

        Raises:
            ConfigError: certificates of one cannot be used.
        """
        self._all = [Extender(one) for one in documents]
        self._deciding = [
            one
            for one in self._all
            if one.document.filter_verb or one.document.prioritize_verb or one.document.preempt_verb
        ]
        self.whole_nodes = any(
            not one.document.node_cache_capable
            and (one.document.filter_verb or one.document.prioritize_verb)
            for one in self._all
        )
        """Whether any is sent nodes as the server has them."""
        self.bind = any(one.document.bind_verb for one in self._all)
        """Whether any binds pods."""

    def concern(self, pod: PodInfo) -> bool:
        """Whether any has a say in where the pod goes."""
        return any(one.wants(pod) for one in self._deciding)

    def binder_of(self, pod: PodInfo) -> Extender | None:
        """Who binds the pod in our place."""
        return next((one for one in self._all if one.document.bind_verb and one.wants(pod)), None)

    def preempts(self, pod: PodInfo) -> bool:
        """Whether any is asked whom to evict for the pod."""
        return any(one.document.preempt_verb and one.wants(pod) for one in self._deciding)

    async def ask(
        self, pod: PodInfo, whole: bytes, names: Sequence[str], nodes: Mapping[str, bytes]
    ) -> Opinion:
        """Filters one after the other, then scores all at once, if more than one node is left."""
        asked = [one for one in self._deciding if one.wants(pod)]
        left, failed, unresolvable = list(names), dict[str, str](), dict[str, str]()
        for one in asked:
            if not one.document.filter_verb or not left:
                continue
            try:
                found = await one.filter(whole, left, nodes)
            except ExtenderError as error:
                if not one.document.ignorable:
                    return Opinion(asked=list(names), error=str(error))
                log.warning("%s; it is ignorable and was skipped", error)
                continue
            left = found.names
            failed.update(found.failed)
            unresolvable.update(found.unresolvable)
        scores: Sequence[Scored] = ()
        if len(left) > 1:
            scoring = [one for one in asked if one.document.prioritize_verb]
            each = (one.score(whole, left, nodes) for one in scoring)
            scores = await asyncio.gather(*each)
        return Opinion(
            asked=list(names),
            passed=left,
            failed=failed,
            unresolvable=unresolvable,
            scores=list(scores),
        )

    async def agree(
        self, pod: PodInfo, whole: bytes, victims: Victims
    ) -> tuple[dict[str, list[str]], str]:
        """What all leave of the nodes to evict pods from, or why one that may not fail did."""
        left = dict(victims)
        for one in self._deciding:
            if not (left and one.document.preempt_verb and one.wants(pod)):
                continue
            try:
                found = await one.agree(whole, left)
                for node in [node for node, uids in found.items() if not uids]:
                    if not one.document.ignorable:
                        why = f"extender {one.url}: it names no victims on node {node}"
                        return {}, why
                    del found[node]
            except ExtenderError as error:
                if not one.document.ignorable:
                    return {}, str(error)
                log.warning("%s; it is ignorable and was skipped", error)
                continue
            left = {
                node: ([pod for pod in left[node][0] if pod.uid in uids], left[node][1])
                for node, uids in found.items()
            }
        return {node: [one.uid for one in pods] for node, (pods, _) in left.items()}, ""

    def close(self) -> None:
        """Closes all connections."""
        for one in self._all:
            one.channels.close()


def _context(url: str, document: ExtenderDocument, tls: ExtenderTLS) -> ssl.SSLContext:
    """Whom to trust: the CA given; anybody, if it is told to, or has none and `enableHTTPS`.

    Raises:
        ConfigError: a file or what it holds cannot be used.
    """
    try:
        context = trusting(
            None if tls.ca_data else tls.ca_file or None,
            base64.b64decode(tls.ca_data).decode("ascii") if tls.ca_data else None,
            anybody=tls.insecure or (document.enable_https and not (tls.ca_file or tls.ca_data)),
        )
        if tls.cert_file or tls.cert_data:
            given = (tls.cert_file, tls.cert_data), (tls.key_file, tls.key_data)
            pair = (base64.b64decode(d) if d else Path(f).read_bytes() for f, d in given)
            load_pair(context, *pair)
    except (OSError, ValueError) as error:
        files = ", ".join(filter(None, (tls.ca_file, tls.cert_file, tls.key_file)))
        why = one_line(getattr(error, "strerror", None) or str(error))
        of = f" ({files})" if files else ""
        raise ConfigError(f"extenders: {url}: certificates cannot be used{of}: {why}") from error
    return context
