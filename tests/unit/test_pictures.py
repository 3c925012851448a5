"""Pictures, texts and names of the built-in games: what a person sees is the state of the game."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arena import registry
from arena.cli.play.shown_game import PICTURE, RenderedGame
from arena.errors import ConfigError
from arena.game.labels import rows
from arena.replay.verify import drawer_of, rendering_of
from envs.adapters.batched_wrappers import TimeLimited
from envs.common import drawing
from envs.cover import Cover
from envs.matrix import GAMES, Matrix
from envs.minesweeper import Minesweeper
from envs.multi_snake import MultiSnake
from envs.skirmish import Skirmish
from envs.touchdown import Touchdown
from envs.unit_tasks import TASKS, unit_task

ONE = np.ones(1, np.bool_)
DIRECTIONS = {"stay": (0, 0), "right": (1, 0), "left": (-1, 0), "up": (0, 1), "down": (0, -1)}


def begun(make: Any, **kwargs: Any) -> Any:
    """A game of one lane that has begun."""
    game = make(lanes=1, **kwargs)
    game.reset(ONE, [3])
    return game


def numbers(make: str, **kwargs: Any) -> Any:
    """A game as the arena makes it, with its labels."""
    game = registry.adapt_environment(make, kwargs, 1)
    return game, game.reset(ONE, [3])


@pytest.mark.parametrize("mirror", [False, True])
def test_moves_of_touchdown_are_named_as_they_are_seen(mirror: bool) -> None:
    game, _ = numbers("touchdown", team_size=2, mirror=mirror)
    for entity in range(4):
        labels = game.interface.labels_of(entity)
        for choice, name in enumerate(labels.actions[0].choices):
            game.reset(ONE, [3])
            game.positions[:] = np.array([[-0.5, 0.5], [0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]])
            before = game.positions.copy()
            game.step([np.array([choice if one == entity else 0]) for one in range(4)])
            moved = np.rint(10 * (game.positions - before)[0])
            assert tuple(moved[entity]) == DIRECTIONS[name]
            assert labels.keys.get(name) == (None if name == "stay" else choice)


@pytest.mark.parametrize("mirror", [False, True])
def test_observations_of_touchdown_are_named_by_entity(mirror: bool) -> None:
    game, frame = numbers("touchdown", team_size=2, mirror=mirror)
    names = game.interface.entities
    for entity, (space, seen) in enumerate(zip(game.interface.observation_spaces, frame.observations, strict=True)):
        for name, text in rows(space, game.interface.labels_of(entity).observations, seen[0]):
            player, axis = name.split(" ")
            sign = -1 if axis.startswith("-") else 1
            place = game.positions[0, names.index(player), "xy".index(axis[-1])]
            assert float(text) == pytest.approx(sign * place, abs=1e-3)


def test_names_fit_every_view_and_control_of_touchdown() -> None:
    game, _ = numbers("touchdown", team_size=1, blue_obs="image", blue_actions="continuous", red_actions="continuous")
    blue, red = game.interface.labels
    assert (blue.observations, blue.keys, [part.name for part in blue.actions]) == ((), {}, ["x", "y"])
    assert len(red.observations) == 4
    assert not numbers("touchdown", team_size=5)[0].interface.labels_of(0).observations


def test_observations_of_cover_are_named() -> None:
    game, frame = numbers("cover", players=3)
    found = dict(
        rows(game.interface.observation_spaces[1], game.interface.labels_of(1).observations, frame.observations[1][0])
    )
    assert float(found["own x"]) == pytest.approx(game.positions[0, 1, 0], abs=1e-3)
    assert float(found["target 2 y"]) == pytest.approx((game.targets[0, 2] - game.positions[0, 1])[1], abs=1e-3)
    assert float(found["player_2 x"]) == pytest.approx((game.positions[0, 2] - game.positions[0, 1])[0], abs=1e-3)


@pytest.mark.parametrize("name", GAMES)
def test_matrix_games_name_actions_and_observations(name: str) -> None:
    game, _ = numbers("matrix", game=name)
    actions = game.interface.labels_of(0).actions[0].choices
    frame = game.step([np.array([len(actions) - 1]), np.array([0])]).frame
    found = dict(
        rows(game.interface.observation_spaces[0], game.interface.labels_of(0).observations, frame.observations[0][0])
    )
    last = {"2B"} if name == "two_step" else {f"own {actions[-1]}", f"other {actions[0]}"}
    assert {text for text, value in found.items() if value == "1"} == last


def test_numbers_around_mines_are_those_of_the_neighbors() -> None:
    game = begun(Minesweeper, mines=9)
    mines = {tuple(mine) for mine in game.mines[0].tolist()}
    robots = {tuple(robot) for robot in game.robots[0].tolist()}
    game.render_mode = "ansi"
    lines = [line.split() for line in game.render().splitlines()]
    for x in range(6):
        for y in range(6):
            near = sum((x + dx, y + dy) in mines for dx in (-1, 0, 1) for dy in (-1, 0, 1))
            text = lines[5 - y][x]
            if (x, y) in mines:
                assert text == "*"
            elif (x, y) in robots:
                assert text == f"R{9 + game.robots[0].tolist().index([x, y])}"
            else:
                assert text == (str(near) if near else ".")


def test_texts_show_pieces_where_they_are() -> None:
    duel = begun(Touchdown, team_size=2, render_mode="ansi")
    duel.positions[0] = [[-1, 1], [0, 0], [1, -1], [0.5, 0.2]]
    lines = [line.split() for line in duel.render().splitlines()]
    assert (lines[0][0], lines[10][10], lines[20][20], lines[8][15]) == ("b0", "b1", "r0", "r1")
    assert lines[1] == lines[19] == ["-"] * 21
    cover = begun(Cover, players=2, render_mode="ansi")
    cover.positions[0], cover.targets[0] = [[-1, -1], [1, 1]], [[0, 0], [1, 1]]
    lines = [line.split() for line in cover.render().splitlines()]
    assert (lines[20][0], lines[0][20], lines[10][10]) == ("0", "1", "o")
    snake = begun(MultiSnake, snakes=1, size=4, render_mode="ansi")
    snake.lengths[0], snake.segments[0, 0, :3], snake.food[0] = [3], [[0, 0], [1, 0], [1, 1]], [[3, 3]]
    assert snake.render().split("\n") == [" .  .  . *a", " .  .  .  .", " .  A  .  .", " a  a  .  ."]


def test_numbers_of_soldiers_are_the_indices_that_their_player_knows() -> None:
    fight = begun(Skirmish, team_size=2, width=6, height=1, render_mode="ansi")
    fight.places[:, 0], fight.health[:, 0] = [[[0, 0], [1, 0]], [[5, 0], [4, 0]]], [[1, 2], [0, 1]]
    (blue, red), board = fight._frame().observations, [fight.render()]
    fight.seen_by = 1
    assert [*board, fight.render()] == ["b0 b1  .  . r2  .", " . r0  .  . b2 b1"]  # the first of red is gone
    for shown, text in ((blue, board[0]), (red, fight.render())):
        units = np.concatenate([shown["units"][name].values for name in ("Own", "Enemy")])
        assert all(text.split()[int(x)][1] == str(unit) for unit, (x, _, _) in enumerate(units))


def test_each_player_is_shown_the_board_from_its_side() -> None:
    game = RenderedGame(lanes=1, make="skirmish", kwargs={}, modes=["ansi"], wrappers=[("time_limit", 5)])
    (infos,) = game.reset(ONE, [3]).infos or []
    blue, red = (info[PICTURE].splitlines() for info in infos)
    assert blue != red and [line.split()[::-1] for line in blue[::-1]] == [
        [text if text == "." else f"{text[0]}{(int(text[1]) + 5) % 10}" for text in line.split()] for line in red
    ]
    assert str(game.render()).splitlines() == blue
    alike = RenderedGame(lanes=1, make="touchdown", kwargs={}, modes=["ansi"])
    (infos,) = alike.reset(ONE, [3]).infos or []
    assert infos[0][PICTURE] == infos[1][PICTURE]


def test_only_games_that_declare_it_are_told_how_to_draw() -> None:
    game = TimeLimited(begun(Skirmish, team_size=1, render_mode="ansi"), 9)
    assert drawer_of(game, "policies") is drawer_of(game, "seen_by") is game.game
    field = begun(Touchdown, team_size=1)
    assert drawer_of(field, "policies") is field and drawer_of(field, "seen_by") is None

    class Own:
        policies, seen_by, metadata = "my own", "mine", {"render_modes": ["ansi"]}

    own = Own()
    own.game = own  # type: ignore[attr-defined]
    for metadata in (Own.metadata, None, {"drawn_with": 5}, {"drawn_with": "policies"}):
        own.metadata = metadata  # type: ignore[assignment]
        assert drawer_of(own, "policies") is drawer_of(own, "seen_by") is None


def test_pictures_name_the_policies_of_a_recorded_game() -> None:
    game = begun(Touchdown, team_size=2, render_mode="ansi")
    before = game.render().splitlines()
    game.policies = ["walker", "learner", "chaser", "chaser"]
    assert game.render().splitlines() == [*before, "walker: blue_0", "learner: blue_1", "chaser: red_0, red_1"]


def test_payoffs_have_names_and_brackets_around_the_last_choice() -> None:
    game = begun(Matrix, render_mode="ansi")
    assert "[" not in game.render()
    game.step([np.array([1]), np.array([0])])
    assert game.render().splitlines() == [
        "          cooperate    defect",
        "cooperate      3, 3      0, 5",
        "   defect    [5, 0]      1, 1",
    ]
    own = begun(Matrix, payoffs=[[1, 2, 3]], render_mode="ansi")
    assert own.render().splitlines()[0].split() == ["0", "1", "2"]
    stages = begun(Matrix, game="two_step", render_mode="ansi")
    for first, table in ((1, "0, 0"), (1, "[8, 8]")):
        stages.step([np.array([first]), np.array([1])])
        assert ("[8, 8]" in stages.render()) == (table == "[8, 8]")


def test_pieces_carry_numbers_that_differ() -> None:
    seen = set()
    for number in (*range(12), 199):
        image = drawing.Board(21, 21, [drawing.Mark(10, 10, drawing.BLUE, "", f"{number}", size=0.5)]).image()
        seen.add(image.tobytes())
        assert (image[240 - 8 : 240 + 8, 240 - 8 : 240 + 8] == 255).all(-1).any()  # the number
    assert len(seen) == 13


def test_image_and_text_show_the_same_cells() -> None:
    colors = np.array([[31, 119, 180], [214, 39, 40]])
    for columns, high in ((3, 2), (1, 5), (40, 20), (300, 2)):
        marks = [
            drawing.Mark(0, 0, drawing.BLUE, "b", shape="box"),
            drawing.Mark(columns - 1, high - 1, drawing.RED, "r"),
            drawing.Mark(columns, high, drawing.RED, "off"),  # left out of the text
        ]
        board = drawing.Board(columns, high, marks, ["a line"])
        *cells, line = str(board.render("ansi")).splitlines()
        assert (len(cells), cells[-1].split()[0], cells[0].split()[-1], line) == (high, "b", "r", "a line")
        image = board.render("rgb_array")
        assert isinstance(image, np.ndarray) and max(image.shape) == max(480 + 20 * (high > columns), 2 * columns + 48)
        side = max(2, 432 / max(columns, high))
        places = [(24 + (high - 0.5) * side, 24 + side / 2), (24 + side / 2, 24 + (columns - 0.5) * side)]
        for (row, column), color in zip(places, colors, strict=True):
            assert (image[int(row), int(column)] == color).all() or side < 4


def test_tasks_have_images_and_texts() -> None:
    for make, kwargs in (("unit_task", {"task": "xor"}), ("cover", {"players": 2})):
        assert rendering_of(make, kwargs).modes == ("rgb_array", "ansi")
    task = unit_task("xor", render_mode="ansi")
    task.reset(seed=3)
    first, second, negate = task.bits  # type: ignore[attr-defined]
    assert task.render().splitlines() == [f"0 Input {first} 1 Input {second}", f"negate {negate}"]
    lava = unit_task("floor_is_lava", render_mode="ansi")
    lava.reset(seed=3)
    text = str(lava.render()).split()
    assert len(text) == 9 and text[4] == "P" and text.count("^") == 1 and text.count("~") == len(lava.lava)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="render_mode: got 'human'"):
        unit_task("xor", render_mode="human")


@pytest.mark.parametrize("task", TASKS)
def test_pictures_of_a_task_have_one_size_in_an_episode(task: str) -> None:
    game = registry.adapt_environment("unit_task", {"task": task}, 1)
    frame, generator = game.reset(ONE, [3]), np.random.default_rng(0)
    acted: Any = game.interface.action_spaces[0]
    picture = game.render()
    assert isinstance(picture, np.ndarray) and picture.shape[2] == 3
    sizes, over = {picture.shape}, False
    while not over:
        step = game.step([acted.draw(frame.observations[0]["actions"], generator)])
        frame, over = step.frame, bool(step.terminated[0, 0])
        picture = game.render()
        assert isinstance(picture, np.ndarray)
        sizes.add(picture.shape)
    assert len(sizes) == 1


def test_hidden_units_are_not_drawn() -> None:
    shown, hidden = unit_task("rock_paper_scissors", cheat=True), unit_task("rock_paper_scissors")
    pictures = []
    for game in (shown, hidden):
        throws = set()
        for seed in range(8):
            game.reset(seed=seed)
            throws.add(game.render().tobytes())
        pictures.append(len(throws))
    assert pictures[0] > 1 and pictures[1] == 1


def test_render_mode_is_checked() -> None:
    with pytest.raises(ConfigError, match="render_mode: got 'human'"):
        Touchdown(lanes=1, render_mode="human")


@pytest.mark.parametrize("row", [0, 17, 20, 30, 41, 60])
@pytest.mark.parametrize("column", [0, 25, 30, 45, 61, 90])
def test_a_label_is_clipped_at_the_edges_of_the_image(row: int, column: int) -> None:
    large, small = np.zeros((60, 90, 3), np.uint8), np.zeros((20, 30, 3), np.uint8)
    drawing._write(large, row, column, "12", drawing.RED, 3)
    drawing._write(small, row - 20, column - 30, "12", drawing.RED, 3)
    assert (small == large[20:40, 30:60]).all()
    marks = [drawing.Mark(column / 10 - 3, row / 10 - 3, drawing.RED, label="12")]
    assert np.shape(drawing.Board(3, 3, marks).image()) == (480, 480, 3)
