"""The offline model and the course's prompts that it cannot follow."""

import pytest

from .conftest import Mudroom
from .test_course_background import ONE
from .test_course_teams import CLAIM, SPAWN
from .test_course_workspaces import BIND

PROMPTS = [*ONE, *SPAWN, *CLAIM, *BIND]


@pytest.mark.parametrize("prompt", PROMPTS)
async def test_the_offline_model_says_that_it_cannot_follow_the_prompt(
    mudroom: Mudroom, prompt: str
) -> None:
    before = sorted(mudroom.project.iterdir())
    done = await mudroom("-p", prompt, "-m", "offline", "--board")
    assert done.code == 1 and not done.out
    assert "The offline model follows rules" in done.err or "离线模型只按规则工作" in done.err
    assert sorted(mudroom.project.iterdir()) == before, "nothing was done"
