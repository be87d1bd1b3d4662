"""How the words of a command are read: `duly NOUN VERB ...`, by the same rules for every noun.

A noun without a verb lists. `list`, `get` and `show` are verbs of every noun that lists; `watch` lists or shows again and
again. A word that is no verb is an error that names the verbs, never an empty answer, unless another command line has it
for one of the verbs (`guesses.py`). Some nouns also take a name without a verb (`duly hosts ID`).
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn, TypeVar

import typer
from typer.core import TyperGroup

import duly
from duly_cli.output.safe_text import one_line, say
from duly_cli.startup.guesses import ADVICE, ENDS, OTHER_NOUNS, OTHER_WORDS, READS

Item = TypeVar("Item")

LIST = "list"
WATCH = "watch"
_HELP = ("--help", "-h")
_LIKE = 0.7
"""How like a word must be to be named: `frobnicate` is not meant for `frontend`."""
_NEVER_SUGGESTED = frozenset(
    {
        "cancel",
        "delete",
        "purge",
        "redrive",
        "remove",
        "reset",
        "revoke",
        "rollback",
        "restore",
        "migrate",
        "db",
    }
)
"""What cannot be undone is never proposed to somebody who mistyped."""
_NO_NAMES = frozenset(
    {*OTHER_WORDS, *ENDS, "schedule", "status", "wait", "cancel", "purge", "redrive", WATCH}
) - {
    *(
        "run",
        "start",
        "submit",
        "enqueue",
        "trigger",
        "log",
        "why",
        "hold",
        "signal",
        "continue",
        "end",
        "view",
    ),
}
"""Words that people take for verbs, beside the verbs that there are. Those left out are usual in names of lambdas."""


_SHORT_FOR = {
    **dict.fromkeys(("explain", "cancel", "wait", "logs", "update", "redrive", "reveal"), "tasks"),
    **dict.fromkeys(("pause", "resume"), "lambdas"),
}
"""Shortcuts that take names of a noun: `duly explain task ID` has a word more than it needs."""


class UnknownNameError(ValueError):
    """Nothing has the name that a command was given."""


def one_of(found: Iterable[Item], is_meant: Callable[[Item], bool], otherwise: str) -> Item:
    """Return the first that is meant.

    Raises:
        UnknownNameError: none is; `otherwise` says so.
    """
    for each in found:
        if is_meant(each):
            return each
    raise UnknownNameError(otherwise)


class Commands(TyperGroup):
    """All of `duly`: without words it shows its help; nouns may be singular or plural."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Show the help where nothing was said."""
        if not args and not ctx.resilient_parsing:
            _show_help(ctx)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Find a command; a noun by its other number, too."""
        return super().get_command(ctx, cmd_name) or self.noun(cmd_name)

    def noun(self, word: str) -> "Noun | None":
        """Return the noun that a word names in the singular or the plural; None: it names none."""
        for name in (word, word.removesuffix("s") if word.endswith("s") else f"{word}s"):
            found = self.commands.get(name)
            if isinstance(found, Noun):
                return found
        return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments name; who knows another command line is told Duly's words."""
        if not ctx.resilient_parsing:
            args = self._in_order(ctx, args)
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {one_line(args[0])!r}.{self._meant(args)}")
        return super().resolve_command(ctx, args)

    def _in_order(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the words with the noun first, where `duly get lambdas` reads something; a change is not guessed."""
        verb, *rest = args
        if verb == "help" and self.get_command(ctx, verb) is None:
            return [*rest, _HELP[0]] if rest else _show_help(ctx)
        noun = self.noun(rest[0]) if rest else None
        if noun is not None and noun.name:
            is_named = len(rest) > 1 and not rest[1].startswith("-")
            if verb in READS:
                return [noun.name, "show" if is_named else LIST, *rest[1:]]
            if self.get_command(ctx, verb) is None:
                if verb == WATCH:
                    return [noun.name, verb, *rest[1:]]
                words = noun.in_own_words([verb, *rest[1:]])
                if words[0] in noun.commands:
                    ctx.fail(f"The noun goes first: `duly {one_line(shlex.join([noun.name, *words]))}`.")
            elif is_named and noun.name == _SHORT_FOR.get(verb):
                return [verb, *rest[1:]]
            elif is_named and verb in _SHORT_FOR and verb in noun.commands:
                ctx.fail(f"The noun goes first: `duly {one_line(shlex.join([noun.name, verb, *rest[1:]]))}`.")
        if self.get_command(ctx, verb) is None and verb in READS:
            return ["get" if rest and not rest[0].startswith("-") else LIST, *rest]
        return args

    def _meant(self, args: Sequence[str]) -> str:
        """Return what is said to a word that is no command; nothing that destroys is named unless it was asked for."""
        word = args[0].lower()
        if word in ADVICE:
            advice = ADVICE[word]
            return f" {advice[0].upper()}{advice[1:]}."
        noun = OTHER_NOUNS.get(word) or OTHER_NOUNS.get(word.removesuffix("s"))
        if noun is not None and noun in self.commands:
            return f" Duly calls them {noun}: `duly {noun}` lists them, `duly {noun} --help` has the verbs."
        harmless = [
            name for name, each in self.commands.items() if not each.hidden and name not in _NEVER_SUGGESTED
        ]
        found = get_close_matches(word, harmless, cutoff=_LIKE)
        return (
            f" Did you mean {' or '.join(map(repr, found))}?"
            if found
            else " `duly --help` lists the commands."
        )


class Noun(TyperGroup):
    """What commands are about: its verbs are its commands."""

    named = ""
    """The verb for a name that stands without one; empty: a name needs a verb."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put in the verb where none was said: options alone are those of the list."""
        is_said = bool(args) and (not args[0].startswith("-") or args[0] in _HELP)
        if not is_said and not self._lists and not ctx.resilient_parsing and not args:
            _show_help(ctx)
        if is_said or not self._lists or (ctx.resilient_parsing and not args):
            return super().parse_args(ctx, args)
        rest = super().parse_args(ctx, [LIST, *args])
        if not ctx.resilient_parsing:
            self._check_words(ctx, LIST, args)
        return rest

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb that the arguments name."""
        args = self.in_own_words(args)
        if args[0] in self.commands or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        if not self.named or args[0] in self._verbs(ctx):
            self._refuse(ctx, args[0])
        self._check_words(ctx, self.named, args)
        name, command, rest = super().resolve_command(ctx, [self.named, *args])
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; a name without a verb that nothing has may have been meant as one."""
        words = [*ctx._protected_args, *ctx.args]  # noqa: SLF001 (as the base class has it)
        try:
            return super().invoke(ctx)
        except typer.Exit as ended:
            is_unknown = isinstance(ended.__cause__, (duly.UnknownLambdaError, UnknownNameError))
            if is_unknown and words and words[0] not in self.commands:
                say(f"duly: the verbs of `duly {ctx.info_name}` are {self._named_verbs()}", err=True)
                raise typer.Exit(2) from ended
            raise

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete verbs, and the options of the list."""
        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-") and self._lists:
            listing = self.commands[LIST]
            with listing.make_context(LIST, [], parent=ctx, resilient_parsing=True) as inner:
                known = {each.value for each in found}
                found += [
                    each for each in listing.shell_complete(inner, incomplete) if each.value not in known
                ]
        return found

    def in_own_words(self, args: list[str]) -> list[str]:
        """Return words that begin with a verb, with that of this noun for one of another command line."""
        word, *rest = args
        if word in self.commands or (self.named and word not in _NO_NAMES):
            return args
        if word == WATCH:
            is_named = bool(rest) and not rest[0].startswith("-") and "show" in self.commands
            verb = "show" if is_named else LIST
            is_watched = verb in self.commands and any(
                "--watch" in each.opts for each in self.commands[verb].params
            )
            return [verb, "--watch", *rest] if is_watched else args
        known = [each for each in OTHER_WORDS.get(word, ()) if each in self.commands]
        return [known[0], *rest] if known else args

    @property
    def _lists(self) -> bool:
        """Whether it lists without a word: not if its list is of something that must be named."""
        listing = self.commands.get(LIST)
        return listing is not None and not any(each.required for each in listing.params)

    def _check_words(self, ctx: Any, verb: str, args: Sequence[str]) -> None:
        """Refuse a verb that stands where a name is read, such as behind an option."""
        command = self.commands[verb]
        with command.make_context(verb, [*args], parent=ctx, resilient_parsing=True) as inner:
            names, others = list(_positional(command, inner.params)), list(inner.args)
        for word in (*names, *others):
            if word in self.commands:
                option = args[0]
                ctx.fail(f"write {option} after `{word}`: duly {ctx.info_name} {word} ... {option}")
            if word in others or word in self._verbs(ctx):
                self._refuse(ctx, word)

    def _refuse(self, ctx: Any, word: str) -> None:
        text = f"`duly {ctx.info_name}` has no verb {one_line(word)!r}: its verbs are {self._named_verbs()}."
        if word in ENDS and "cancel" in self.commands:
            text += f" `duly {ctx.info_name} cancel` asks what runs to stop."
        if self.named:
            text += f" For one of this name: duly {ctx.info_name} {self.named} {one_line(word)}"
        ctx.fail(text)

    def _named_verbs(self) -> str:
        """Return the verbs as people are told them; `get` and `show` are the same."""
        names = [name for name, each in self.commands.items() if not each.hidden]
        return f"{', '.join(names[:-1])} and {names[-1]}"

    @staticmethod
    def _verbs(ctx: Any) -> set[str]:
        """Return what is a verb of some noun."""
        nouns = ctx.find_root().command.commands.values()
        return {*_NO_NAMES, *(verb for noun in nouns for verb in getattr(noun, "commands", ()))}


def _positional(command: Any, values: dict[str, Any]) -> Iterator[str]:
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            value = values.get(parameter.name)
            yield from (
                value if isinstance(value, (list, tuple)) else [value] if isinstance(value, str) else ()
            )


def _show_help(ctx: Any) -> NoReturn:
    if text := ctx.get_help():  # rich prints it by itself
        typer.echo(text)
    raise typer.Exit
