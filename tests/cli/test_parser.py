"""The parser by itself, with commands of a test."""

import pytest

from raysm.cli.parser import Parser, add_command


@pytest.fixture
def parser():
    """A command line with ``run``, which takes ``--colour``, below a program of its own."""
    parser = Parser(prog="paint", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "show"):
        command = add_command(commands, name, "paint a wall", run="paint:run", is_scripted=name == "run")
        command.add_argument("--colour", required=True)
        command.add_argument("--dry", action="store_true")
        command.add_argument("--coats", type=int)
        command.add_argument("--litres", type=float)
        command.add_argument("--output", metavar="DIR")
        command.add_argument("-v", "--verbose", action="store_true")
        command.add_argument("walls", nargs="*")
    return parser


def said(parser, capsys, *argv):
    """Return the lines with which a command line is refused."""
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(argv)
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()


def test_a_command_that_runs_a_script_says_where_the_scripts_own_arguments_go(parser, capsys):
    refusal, _ = said(parser, capsys, "run", "--epochs=10")
    assert "there is no option --epochs; the arguments of a script go behind --" in refusal


@pytest.mark.parametrize(
    ("argv", "moved"),
    [
        ("wall.py --n 4", "wall.py -- --n 4"),
        ("wall.py --n=4 --colour red", "wall.py --colour red -- --n=4"),
        ("--dry wall.py --n 4 --m", "--dry wall.py -- --n 4 --m"),
    ],
)
def test_it_says_so_in_the_users_own_words_before_it_proposes_an_option(parser, capsys, argv, moved):
    refusal, _ = said(parser, capsys, "run", *argv.split())
    assert (
        refusal
        == f"paint run: there is no option {argv[argv.index('--n') :][:3]}; if it is the script's: paint run {moved}"
    )


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("-c", "--colour"),  # the first of that letter
        ("-c=red", "--colour"),
        ("-o", "--output"),  # as compilers have it
        ("-coats", "--coats"),
        ("-l7", "--litres"),
    ],
)
def test_of_a_letter_the_option_is_named_that_others_call_so(parser, capsys, typed, meant):
    refusal, _ = said(parser, capsys, "show", "--colour", "red", typed)
    assert refusal == f"paint show: there is no option {typed.partition('=')[0]}; did you mean {meant}?"


def test_letters_that_are_options_and_numbers_below_0_are_left_alone(parser):
    arguments = parser.parse_args(["show", "-v", "--colour", "red", "--coats", "-2", "--litres", "-.5"])
    assert (arguments.verbose, arguments.coats, arguments.litres) == (True, -2, -0.5)
