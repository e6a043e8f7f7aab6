"""Texts that other tests look at many at a time, here one by one: a mutant meets the few it needs.

No test file of its own (pytest does not find it by name): the mutation check names it.
"""

import hashlib

import pytest

from tests.dsl import test_fixes
from tests.dsl.corpus import policies


def ident(text):
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:12]


POLICIES = [pytest.param(text, id=ident(text)) for text in policies()]


@pytest.mark.parametrize("text", POLICIES)
def test_a_fix_cures_its_finding(text):
    test_fixes.check_fixes(text)
