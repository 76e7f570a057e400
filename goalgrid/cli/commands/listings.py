"""Verbs that list, explain, draw and check grids, recipes, data sets, objectives and settings; and `goalgrid new`."""

import io
import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import partial
from pathlib import Path

import typer

from goalgrid.cli import completion, options
from goalgrid.cli.console import check_lines, say, show, show_for, show_json, show_lines, show_list
from goalgrid.cli.exits import EXIT
from goalgrid.cli.options import argument, flag, objective_settings
from goalgrid.grid import catalog, gridfile, user_recipes
from goalgrid.grid.columns import from_command_line
from goalgrid.grid.errors import UserError, check_known, counted, user_path
from goalgrid.grid.store.files import write_text
from goalgrid.grid.store.home import State
from goalgrid.grid.store.output_files import write_output
from goalgrid.grid.syntax import setting_text
from goalgrid.listings import lists, new_grid, settings_list

verbs = typer.Typer()

PICTURES = ("png", "pdf", "svg")


@verbs.command()
def new(
    name: str = argument(..., "NAME", "Name of the grid; writes NAME.toml."),
    root: str | None = flag(None, "--root", "Folder of your own images or features.", "DIR"),
    dataset: str | None = flag(
        None, "--dataset", "Data set; default: the grid's name with --root, otherwise synthetic scenes.", "NAME"
    ),
    recipes: list[str] = flag([], "--recipe", "Recipe; default: one that reads these data; repeatable.", "NAME"),
    objectives: list[str] = flag(
        [], "--objective", f"Objective; default: {', '.join(new_grid.EXAMPLES)}, and yours; repeatable.", "NAME"
    ),
    columns: list[str] = options.COLUMNS,
    files: list[str] = options.USES,
) -> None:
    """Create a starter grid file."""
    name = name.removesuffix(".toml")
    known, named = options.catalog_of(files), from_command_line(columns)
    content, notes = new_grid.text(name, dataset, recipes, objectives, root, files, named, known)
    path = Path(f"{name}.toml")
    if path.exists():
        raise UserError(f"{path} already exists. Choose another name, or move the file away.")
    write_text(path, content)
    for note in notes:
        say(f"note: {note}")
    say(f"written: {path}. What it would train: goalgrid plan {path}. Train it: goalgrid run {path}")


@verbs.command()
def grids(as_json: bool = options.JSON) -> None:
    """List the shipped grids with their axes."""
    if as_json:
        show_json(lists.grids())
        return
    lines = {}
    for name in catalog.names("presets"):
        grid = gridfile.load(name)
        sizes = " x ".join(counted(len(values), axis) for axis, values in grid.axes().items())
        if grid.select:
            sizes += f", each with its own {' and '.join(grid.select.over)} of {len(grid.select.points())} points"
        lines[name] = f"{sizes}: {', '.join(grid.recipes)} on {', '.join(grid.datasets)}"
    show_list(lines)


@verbs.command()
def recipes(
    name: str | None = argument(None, "NAME", "Show all settings of this recipe or recipe file.", completion.recipes),
    parameters: bool = flag(False, "--parameters", "Show the number of weights. All recipes take about half a minute."),
    as_json: bool = options.JSON,
) -> None:
    """List the recipes and what they read; or explain one.

    A recipe is a backbone with its training settings. It reads images, features (one vector per image, or regions),
    sets of regions, or videos. --parameters shows how many weights its model has, and how many are trained.
    """
    known = catalog.SHIPPED
    if name is not None and name.endswith(".toml"):
        recipes_of_file = user_recipes.OwnRecipes({}, Path())
        name = recipes_of_file.add(name)
        known = known.with_recipes(recipes_of_file.whole)
    if parameters:
        sizes = {one: lists.size(one, known) for one in ([name] if name else catalog.names("recipes"))}
        content = [{"name": one} | asdict(size) for one, size in sizes.items()]
        show_for(as_json, lambda: content, lambda: lists.size_lines(sizes))
        return
    if as_json:
        show_json(lists.recipe(name, known) if name else list(map(lists.recipe_row, catalog.names("recipes"))))
        return
    if name is None:
        names = catalog.names("recipes")
        show_list({name: f"{known.reads(name):21} {known.recipe(name).description}" for name in names})
        return
    recipe = known.recipe(name)
    show(f"{name}: {recipe.description}; reads {known.reads(name)}\n")
    if recipe.ensemble:
        show(
            f"Averages the scores of {' and '.join(recipe.ensemble)}, trained on the same data set, objective and seed."
        )
        return
    show_list({f"  {setting}": setting_text(value) for setting, value in known.settings(name).items()})
    if recipe.words:
        show(f"\nWords of the published setting: {recipe.words}")
    if recipe.readings:
        show("\nOur reading, and where the authors' code differs:")
        show_lines(f"  {phrase}" for phrase in recipe.readings)


@verbs.command()
def datasets(as_json: bool = options.JSON) -> None:
    """List the built-in data sets."""
    if as_json:
        show_json(lists.datasets())
        return
    for name in catalog.names("datasets"):
        dataset = catalog.dataset(name)
        where = f"\n{'':12} {dataset.where} (goalgrid data where {name})" if dataset.where else ""
        show(f"{name:12} {dataset.description} [{', '.join(dataset.protocols)}]{where}")


@verbs.command()
def objectives(
    name: str | None = argument(None, "NAME", "Explain this objective.", completion.objectives),
    as_json: bool = options.JSON,
    files: list[str] = options.USES,
) -> None:
    """List the objectives with their sources; or explain one.

    A cell of GOAL's matrix is "of a loss" if it is the gradient of a loss, with m+ and m- held constant and without a
    hinge. With NAME, show its equation, and its parameters under both variants.
    """
    known = options.catalog_of(files)
    show_for(
        as_json,
        lambda: lists.objective(name, known) if name else lists.objective_rows(known),
        lambda: lists.explained(name, known) if name else lists.objective_lines(known),
    )


@verbs.command()
def settings(
    name: str | None = argument(
        None, "NAME", "Explain this setting, or all with this prefix, e.g. train.", completion.settings
    ),
    as_json: bool = options.JSON,
) -> None:
    """List the settings of a grid file; or explain one.

    Each is listed with its type, default, unit and meaning, and with the condition under which training reads it.
    """
    chosen = settings_list.named(name) if name else settings_list.settings()
    show_for(as_json, lambda: chosen, lambda: settings_list.lines(chosen))


@verbs.command()
def tables(
    name: str | None = argument(
        None, "NAME", "A table or a paper, e.g. selhn-table5 or selhn.", completion.paper_tables
    ),
    as_json: bool = options.JSON,
) -> None:
    """List which rows of the papers' tables can be reproduced here.

    Each row is listed with its grid, recipe and objective, or with the source the paper quotes it from, or with the
    reason why it cannot be reproduced.
    """
    from goalgrid.listings import paper_rows

    rows = paper_rows.rows(name)
    show_for(as_json, lambda: rows, lambda: paper_rows.lines(rows))


@verbs.command()
def diagrams(
    cells: list[str] = argument(
        [], "CELL", "Draw the update fields of these cells, e.g. sig-ms_cir.", completion.objectives
    ),
    output: Path = flag(Path(), "--output -o", "Output folder.", "DIR", parser=user_path),
    format_: str = flag("png", "--format", "File format: png, pdf or svg."),
    set_: list[str] = flag([], "--set", "Set a parameter or the variant, e.g. tau=5.", "KEY=VALUE"),
    files: list[str] = options.USES,
) -> None:
    """Draw Figures 2 and 3 of the GOAL paper, and update fields.

    Without CELL, draw the weights and all 15 update fields; with CELL, draw the update field of each given cell, for
    any parameters. For a loss outside the matrix, e.g. unified, also draw the push on each of 17 negatives by rank.
    """
    check_known("format", format_, PICTURES)
    known = options.catalog_of(files).objectives
    settings = objective_settings(set_, cells, known)
    from goalgrid.objectives import diagrams as draw
    from goalgrid.results.figures.style import ABOUT, check_folder

    check_folder(output)
    whole = {"triplet-weights": draw.triplet_weights, "pair-weights": draw.pair_weights, "cells": draw.cells}
    drawings = {cell: partial(draw.update_field, cell, known) for cell in cells} or whole
    for name, drawing in drawings.items():
        path = output / f"{name}.{format_}"
        content = io.BytesIO()
        drawing(**settings).savefig(content, dpi=200, format=format_, **ABOUT[format_])
        write_output(path, content.getvalue())
        say(f"written: {path}")


@verbs.command()
def check(
    file: str = argument(..., "FILE", "Your Python file, or the name of an installed package."),
    as_json: bool = options.JSON,
) -> None:
    """Check your own losses, poolings, encoders and scorers.

    Losses: gradient against finite differences, invariance to batch permutation, half precision, empty sets, state in
    checkpoints, and gradient norm and time compared with the built-in losses. Poolings, encoders and scorers: shape,
    gradient, equal values in any batch and padding, half precision, and weights in checkpoints.
    The exit code is 4 if a check fails.
    """
    from goalgrid.runners.selftest.own_check import verdicts

    with redirect_stdout(sys.stderr):  # stdout carries our product, and a loss may print
        known = options.catalog_of([file])
        verdicts_of = {name: list(verdicts(name, known)) for name in known.registered_names}
    show_for(as_json, lambda: verdicts_of, lambda: check_lines(verdicts_of))
    if any(not verdict.holds for results in verdicts_of.values() for verdict in results):
        raise typer.Exit(EXIT[State.FAILED])
