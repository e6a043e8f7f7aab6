"""AdmissionReview v1: what is asked is read, and whatever else comes is said to be no review."""

from __future__ import annotations

import json

import pytest

from engine.serving.server import BadCallError
from engine.webhook.judging import Answer, read, written

POLICIES = {"metadata": {"namespace": "a", "name": "b"}, "data": {"x.policy": "score: 1\n"}}


def review(**changes):
    request = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "operation": "UPDATE",
        "object": POLICIES,
        "oldObject": POLICIES | {"data": None},
        "dryRun": True,
    }
    whole = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {**request, **changes.pop("request", {})},
    }
    return json.dumps({**whole, **changes}).encode()


def test_what_is_asked_is_read():
    question = read(review())
    assert (question.uid, question.operation, question.dry_run) == ("u-1", "UPDATE", True)
    assert question.new.data == POLICIES["data"]
    assert question.new.metadata.namespace == "a"
    assert question.old.data is None
    gone = read(review(request={"object": None, "operation": "DELETE"}))
    assert gone.new is None
    assert gone.old.metadata.name == "b"
    binary = POLICIES | {"data": {"x.policy": ""}, "binaryData": {"y.policy": "/w=="}}
    assert read(review(request={"object": binary})).new.binary_data == {"y.policy": "/w=="}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not an AdmissionReview"),
        (b"[]", "not an AdmissionReview"),
        (b"\xff\xfe", "not an AdmissionReview"),
        (b'{"request": 1}', "not an AdmissionReview"),
        (b"{}", "found no kind of no version"),
        (review(apiVersion="admission.k8s.io/v1beta1"), "of admission.k8s.io/v1beta1"),
        (review(kind="TokenReview"), "found TokenReview of admission.k8s.io/v1"),
        (review()[:-1] + b', "request": null}', "has no request"),
        (review(request={"kind": {"kind": "Pod"}}), "asked about Pod; only ConfigMaps are checked"),
        (review(request={"kind": {"group": "x.io", "kind": "ConfigMap"}}), "only ConfigMaps"),
        (review(request={"object": {"data": {"x": 1}}}), "not an AdmissionReview: Expected `str`"),
        (review(request={"uid": None}), "not an AdmissionReview"),
        (review(kind="\x1b[31m" + "x" * 5000), "found "),
    ],
)
def test_what_is_no_review_is_said_to_be_none(body, said):
    with pytest.raises(BadCallError) as wrong:
        read(body)
    assert said in str(wrong.value)
    assert len(str(wrong.value)) < 1_200
    assert str(wrong.value).isprintable()


def test_an_object_that_is_nested_too_deeply_is_read_all_the_same():
    deep = b'{"f": ' * 3_000 + b"1" + b"}" * 3_000
    body = review().replace(b'"name": "b"', b'"name": "b", "managedFields": ' + deep)
    assert read(body).new.data == POLICIES["data"]


def test_an_answer_says_why_not_and_warns_in_bounded_lines():
    told = json.loads(written("u-1", Answer()))
    assert told == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u-1", "allowed": True},
    }
    refused = json.loads(written("u-1", Answer("a\nb")))["response"]
    assert (refused["allowed"], refused["status"]["message"]) == (False, "a\nb")
    lines = json.loads(written("u", Answer(warnings=("x\ny\x1b" * 500,) * 20)))["response"]
    assert lines["warnings"][-1] == "and 8 more warnings"
    assert all(len(one) <= 256 and one.isprintable() for one in lines["warnings"])
