"""Needles in a haystack (RULER).

Every document carries its own blank (prose a space before, noise and needle lines a newline behind) and the
layout adds nothing: byte-level BPE joins those blanks to the token beside, so parts count as the joined text.
For tokenizers that do not, a sentence is counted between two others.
"""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memenvs.build.draft import Documents, Draft, item_rng, make_items, progress, seam_tokens
from memenvs.core.checks import check_whole
from memenvs.tasks.taskset import Layout, Task
from memenvs.tasks.tokens import TextTokenizer

_LONGEST = 100  # words of a sentence, where prose has no stops
_STOP = re.compile(r"[.!?\u2026\u3002\uff01\uff1f]\W*$")
_FULLWIDTH_STOP = re.compile(r"[\u3002\uff01\uff1f]\W*")  # Chinese and Japanese: no space behind
_ABBREVIATIONS = frozenset("dr. e.g. etc. i.e. mr. mrs. ms. no. prof. st. u.s. vs.".split())


def read_prose(folder: Path) -> tuple[list[str], tuple[Path, ...]]:
    """The texts of every `*.txt` of a folder, and the files, sorted by name.

    Raises:
        FileNotFoundError: the folder has none.
        ValueError: one of them is not UTF-8.
    """
    files = tuple(sorted(path for path in folder.glob("*.txt") if path.is_file()))
    if not files:
        raise FileNotFoundError(f"no *.txt in {folder}; give a folder of essays as plain text")
    texts = []
    for path in files:
        try:
            texts.append(path.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8"
            ) from error
    return texts, files


def sentences(text: str) -> list[str]:
    """The sentences of a text, one space between two words; joined they are the text up to white space.

    A sentence ends at a stop, unless a small letter follows or the stop is an abbreviation's or an initial's;
    and after `_LONGEST` words.
    """
    words = _FULLWIDTH_STOP.sub(r"\g<0> ", text).split()
    found: list[str] = []
    start = 0
    for end, (word, after) in enumerate(zip(words, [*words[1:], ""], strict=False), 1):
        if _stops(word, after) or end - start == _LONGEST or end == len(words):
            found.append(" ".join(words[start:end]))
            start = end
    return found


def _stops(word: str, after: str) -> bool:
    """Whether a sentence ends between two words."""
    if not _STOP.search(word) or after[:1].islower():
        return False
    bare = word.lstrip("([\"'").lower()
    return bare not in _ABBREVIATIONS and not (len(bare) == 2 and bare[0].isalpha() and bare[1] == ".")


DEPTHS = np.linspace(0.0, 1.0, 40)  # shares of the haystack's characters
MAGIC = "special magic"  # every needle and every question says it


@dataclass(frozen=True)
class Recipe:
    """What a variant hides, and in what.

    Attributes:
        haystack: `"noise"`, `"prose"` or `"needles"`.
        key: kind of the keys, `"word"` or `"uuid"`.
        value: kind of the values, `"number"` or `"uuid"`.
        keys: keys hidden in a task, a haystack of needles not counted.
        asked: how many of them are asked for.
        values: values of each key.
    """

    haystack: str
    key: str
    value: str
    keys: int = 1
    asked: int = 1
    values: int = 1

    @property
    def needles(self) -> int:
        """Needles of a task, a haystack of needles not counted."""
        return self.keys * self.values

    @property
    def answers(self) -> int:
        """Those of them that answer."""
        return self.asked * self.values

    def needle(self, key: str, value: str) -> str:
        """The document that tells a value of a key."""
        return self.document(f"A {MAGIC} {self.value} for {key} is {value}.")

    def document(self, sentence: str) -> str:
        """A sentence with the blank that parts it from its neighbour: a space before, or a newline behind."""
        return f" {sentence}" if self.haystack == "prose" else f"{sentence}\n"

    def question(self, keys: Sequence[str]) -> str:
        """What is asked, of all values of `keys`."""
        names = " and ".join(filter(None, [", ".join(keys[:-1]), keys[-1]]))
        if self.answers == 1:
            return f"What is the {MAGIC} {self.value} for {names} that the text gives?"
        return f"What are all the {MAGIC} {self.value}s for {names} that the text gives?"


@dataclass(frozen=True)
class Plan:
    """What is drawn for a task.

    Attributes:
        needles: key and value of each, those asked for first.
        grid: the depth drawn for each, a share of the haystack.
        pick: chooses the haystack.
    """

    needles: tuple[tuple[str, str], ...]
    grid: tuple[float, ...]
    pick: int


@dataclass(frozen=True)
class Planner:
    """Draws the plan of an item; `taken` has what the haystack holds, so can be no key and no value."""

    recipe: Recipe
    taken: frozenset[str]
    split: str
    seed: int

    def __call__(self, item: int) -> Plan:
        """The plan of item `item`, from its own generator alone."""
        recipe, rng = self.recipe, item_rng(self.seed, self.split, item)
        keys = draw(recipe.key, recipe.keys, rng, self.taken)
        values = draw(recipe.value, recipe.needles, rng, self.taken)
        grid = rng.choice(DEPTHS, recipe.needles, replace=False)
        needles = tuple(zip(np.repeat(keys, recipe.values).tolist(), values, strict=True))
        return Plan(needles, tuple(grid.tolist()), int(rng.integers(2**63)))


def draw(kind: str, count: int, rng: np.random.Generator, taken: Collection[str] = frozenset()) -> list[str]:
    """`count` different strings of a kind, none of them in `taken`.

    Numbers and uuids are all of one length, so none is a part of another; a word may be ("icy-bee" of
    "spicy-beetle"), which matters to no score, because answers are never words.

    Args:
        kind: `"word"` (an adjective and a noun), `"number"` (seven digits) or `"uuid"` (version 4).
        count: strings.
        rng: the chance.
        taken: strings that must not come out; give a set.

    Raises:
        ValueError: there are not so many.
    """
    make, most = _KINDS[kind]
    if count > most - len(taken):
        raise ValueError(
            f"{count} different keys or values of kind {kind!r} are wanted, there are {most - len(taken)}; "
            "ask for fewer tokens, or for a variant with uuids"
        )
    found: dict[str, None] = {}
    while len(found) < count:
        found.update((text, None) for text in make(count - len(found), rng) if text not in taken)
    return list(found)


def occurring(texts: Sequence[str]) -> frozenset[str]:
    """Every string of any kind that the texts hold by chance, lower-cased, inside longer strings too."""
    return frozenset(found for text in texts for look in _LOOK for found in look.findall(text.lower()))


def _words(count: int, rng: np.random.Generator) -> list[str]:
    first = rng.integers(len(ADJECTIVES), size=count).tolist()
    second = rng.integers(len(NOUNS), size=count).tolist()
    return [f"{ADJECTIVES[i]}-{NOUNS[j]}" for i, j in zip(first, second, strict=True)]


def _numbers(count: int, rng: np.random.Generator) -> list[str]:
    return [str(number) for number in rng.integers(10**6, 10**7, size=count).tolist()]


def _uuids(count: int, rng: np.random.Generator) -> list[str]:
    bits = rng.bytes(16 * count)
    return [str(uuid.UUID(bytes=bits[i : i + 16], version=4)) for i in range(0, len(bits), 16)]


# Our own lists: other words than the packages that the papers' code draws from.
ADJECTIVES = """
  able absent acid active actual adept agile airy alert alive amber ample annual apt arctic arid ashen
  astral atomic autumn avid awake azure balmy bare barren basic beaded beige bent bitter bland blank blithe
  blond blue blunt bold bony boreal bouncy brave breezy brief bright brisk broad bronze brown bubbly burly
  busy calm candid canny carved casual chatty chilly chrome civic civil clean clear clever close cloudy
  clumsy coarse cobalt cold comic common cool copper coral cosmic costly cosy covert cozy crafty crisp crude
  cubic curly curved cyan dainty dapper daring dark dear decent deep deft dense devout dim direct divine
  dizzy docile dotted downy dozing drab dreamy dry dual dusky dusty eager early easy ebony edible eerie
  elder elfin empty enamel equal errant even exact exotic expert fabled faded faint fair famous fancy fast
  fickle fiery final fine firm first fixed flat fleet floral fluent fluffy flying foamy focal foggy folded
  fond formal fossil frank free fresh frigid frosty frozen frugal full funny furry fuzzy gaudy gentle giant
  giddy gifted gilded glad glassy global glossy golden good gothic grainy grand grassy gray great green grey
  grim groovy gusty handy happy hardy hasty hazel hazy heady hearty heavy hidden high hilly hoary hollow
  homely honest hooded horned hot huge humble humid hungry hushed husky icy ideal idle indigo inland innate
  inner intact iron ivied ivory jade jagged jaunty jolly jovial joyful joyous juicy jumbo junior just keen
  key kind kindly kingly known laced lacy lanky large late latent lavish lawful lazy leafy lean legal lemony
  level light likely lilac limber linear liquid lithe little lively lofty lone long loose lordly loud loved
  low loyal lucid lucky lunar lush lyric main major marble marine maroon matte mature meek mellow merry
  mighty mild milky minor mint minty misty mobile modern modest moist molten moody mossy motley muddy mural
  musky muted mystic narrow nasal native naval near neat new nifty nimble noble noisy nordic novel nutty
  oaken oblong ochre odd oily old olive opal opaque open optic orange ornate outer oval overt pale pastel
  pearly perky pewter pious placid plaid plain plucky plum plush polar polite posh potent pretty prim prime
  prompt proper proud public puffy pure purple quaint quick quiet quirky ragged rainy random rapid rare
  raspy raw ready real rebel recent red regal remote rich rigid ringed ripe rising robust rocky roomy rosy
  rotund rough round royal ruby ruddy rugged rural russet rustic rusty sacred sage salty sandy sane satin
  saucy savory scenic secret secure senior serene shady shaggy sharp sheer shiny short shy silent silken
  silky silver simple sleek sleepy slick slim slow small smart smoky smooth snowy snug sober social soft
  solar solemn solid somber sonic sooty sorrel sparse spicy spiral spry square stable starry static steady
  steep still stoic stone stormy stout strong sturdy subtle sudden sugary sunken sunlit sunny supple sure
  swift sylvan tacit tall tame tan tangy tart tawny teal tender tepid terse thick thin thorny tidal tidy
  tiny tired topaz tough true trusty turbid twin umber unique united upbeat upper urban useful usual vague
  valid varied vast velvet verbal vernal violet vital vivid vocal warm wary watery wavy waxen weary wet
  white whole wicker wide wild windy winged wintry wise witty wooden woolen woven wry yearly yellow young
  zany zesty zigzag zonal
""".split()

NOUNS = """
  abacus abbey acorn actor agate album alcove alley almond alpaca altar anchor angler ankle anthem antler
  anvil apple apron arcade arch archer arena armor arrow artist aspen aster atlas attic aunt author avenue
  axle badge badger bagel bakery ballad bamboo banjo banner barge barley barn baron barrel basil basin
  basket bay beach beacon bead beam bear beaver bee beetle bell bench berry birch bishop bison boat bobbin
  bonnet book boot border bottle bow bowl box branch bread briar brick bridge brook broom brush bucket
  buckle bugle bureau butter button cabin cable cactus cake camel camera campus canal canary candle canoe
  canopy canvas canyon cape card cargo carpet carrot cart cashew castle cat cavern cedar cellar cello census
  chain chair chalk chapel chart cheese cherry chess chisel chorus cider cinema circle circus clam clay
  cliff cloak clock cloud clover coach coast coin collar comet cook cookie copse corner cotton cousin cove
  cradle crane crater crayon creek crocus crow crown cup dahlia dairy daisy dam dancer deer delta den depot
  desert desk dial diary diner dingo dipper doctor dome donkey door dory dove dragon drawer dress drum duck
  duke dune eagle easel echo eel egret elbow elk elm ember emblem empire engine ermine fable falcon farm
  farmer fence fennel fern ferry fiddle field fig finch fire fjord flag flagon flame flask flint flock flour
  flower flute foal forest forge fork fort fox fresco frog fruit funnel galaxy garden garlic garnet gate
  gazebo gecko gem geyser glade glider globe glove goat goblet gong goose gopher gorge gown grain grape
  grass gravel grotto grove guitar gulf gull habit hall halo hammer harbor hare harp hat hawk heart hearth
  hedge helmet hen herald herb hermit heron hill hinge hippo hive hobby holly honey hoof horn hornet horse
  hostel hotel hound house hut ibex ibis icicle igloo iguana inlet insect iris island islet jacket jaguar
  jar jasper jay jelly jetty jewel jigsaw judge jug jungle jury kayak keel kernel kettle kiln kimono kiosk
  kite kitten kiwi knight knob knot koala label ladder ladle lagoon lake lamb lamp larch lark lasso latch
  lathe laurel lawn leaf ledger lemon lentil letter lichen lily lime linden linen lion lizard llama locket
  lodge loft log loom lotus lute lynx magnet magpie mallet mango manor mantle map maple mare margin market
  marmot marsh mast match maze meadow medal melody melon meteor mill mirror mist mitten moat mole moon moose
  mosaic moth motor mouse muffin mule museum music myrtle napkin nectar needle nephew nest net nettle newt
  nickel niece night nomad noodle nugget nutmeg oak oar oasis oat oboe ocean ocelot office onion opera orbit
  orchid organ oriole osprey otter oven owl oyster paddle page pail palace palm panda pansy papaya paper
  parade parcel parlor parrot path patio pea peach peak peanut pear pearl pebble pencil peony pepper perch
  petal piano pier pigeon pillar pillow pilot pine pipe pirate planet plank plate plaza plough plume pocket
  poem poet pond pony poplar poppy porch potato potter prince prism puddle puffin pulley puppet puppy quail
  quarry quartz queen quill quilt quince quiver rabbit radio radish raft rail rain raisin rake ram ranch
  raven ravine reed reef relic ribbon rice ridge river road robe robin rocket rook rope rose rudder rug
  ruler runner rye saddle sail sailor salad salmon sandal saucer scarf school scroll sea seal season seed
  shawl sheep shelf shell shield ship shoe shop shore shovel shrine shrub sickle signal singer skate sled
  sleeve sloop snail snow soap sofa song soup spade spear spice spider spire sponge spoon spring spruce spur
  squash squid stamp star statue stork storm story stove strand straw stream street studio sugar summit sun
  swan swing sword table tablet tailor tavern tea teapot temple tent thread throne thrush thyme ticket tide
  tiger timber toad toast tomato torch toucan tower town trail train tram tree trout trunk tuba tulip tundra
  tunic tunnel turnip turret turtle twig uncle usher vale valley vault veil vessel vest vicar vine viola
  violin viper voyage waffle wagon waiter wall walnut walrus waltz warden watch water wave weasel weaver
  well whale wharf wheat wheel widget willow wind window winter wolf wombat wood wool wreath wren writer
  yacht yak yarn yeoman yew yogurt zebra zenith zephyr zinnia zither
""".split()

_KINDS: dict[str, tuple[Callable[[int, np.random.Generator], list[str]], int]] = {
    "word": (_words, len(ADJECTIVES) * len(NOUNS)),
    "number": (_numbers, 9 * 10**6),
    "uuid": (_uuids, 2**122),
}
_LOOK = [  # look-ahead finds what overlaps
    re.compile(r"(?=\b([a-z]+-[a-z]+))"),
    re.compile(r"(?=([0-9]{7}))"),
    re.compile(r"(?=([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}))"),
]

RECIPES = {
    "single_1": Recipe("noise", "word", "number"),
    "single_2": Recipe("prose", "word", "number"),
    "single_3": Recipe("prose", "word", "uuid"),
    "multikey_1": Recipe("prose", "word", "number", keys=4),
    "multikey_2": Recipe("needles", "word", "number"),
    "multikey_3": Recipe("needles", "uuid", "uuid"),
    "multivalue": Recipe("prose", "word", "number", values=4),
    "multiquery": Recipe("prose", "word", "number", keys=4, asked=4),
}
VARIANTS = tuple(RECIPES)

_NOISE = (
    "Rain taps on the roof.",
    "A clock ticks in the hall.",
    "The road is long and quiet.",
    "Nobody is in a hurry.",
    "Then it all begins again.",
)
_LEAST_POOL = 2048  # needles, so that the tasks of a small budget differ too

Ints = NDArray[np.int64]


def niah(
    *,
    variant: str,
    count: int,
    tokens: int,
    prose: Sequence[str],
    tokenizer: TextTokenizer,
    split: str,
    seed: int,
    workers: int = 1,
    inputs: tuple[Path, ...] = (),
) -> Draft:
    """Tasks that ask for the values of keys hidden in a long text (RULER's NIAH; the wording is ours).

    A task has one objective, whose accepted answers are all its values (the card says `string_match_all`);
    `evidence[i]` tells `meta["values"][i]`. `meta` also has `variant`, the asked `keys`, and for each of the
    evidence `depths`, where it begins, and `grid`, the depth drawn for it: shares of the text, 0 to 1. A
    haystack of needles is drawn for each task from one pool of the split, which holds no asked key or value.

    Args:
        variant: one of `VARIANTS`.
        count: tasks.
        tokens: budget of a context tokenised whole, never exceeded and missed by less than one haystack
            sentence, by every tokenizer that splits text at words (see `seam_tokens`).
        prose: texts for the variants that hide needles in prose; it starts anew where it ends.
        tokenizer: counts the tokens.
        split: its name goes into the chance and the ids.
        seed: the chance.
        workers: processes that draw.
        inputs: the files that `prose` came from, for the card.

    Raises:
        ValueError: unknown variant, no prose where it is needed, or a budget too small for the needles.
    """
    if variant not in RECIPES:
        raise ValueError(f"no NIAH variant {variant!r}; choose one of {', '.join(VARIANTS)}")
    check_whole(count=count, tokens=tokens)
    recipe, rng = RECIPES[variant], item_rng(seed, f"{split}\0haystack", 0)
    hay = _hay(recipe, tokens, prose, tokenizer, rng)
    haystack = _Haystack(hay, _sizes(hay, hay, tokenizer), recipe.haystack == "needles")
    # What a tokenizer puts before a text that begins counts once.
    opening = max(0, tokenizer.count(hay.texts[0]) - int(haystack.tokens[0]))
    planner = Planner(recipe, occurring(haystack.documents.texts), f"{split}/{variant}", seed)
    plans = make_items(planner, count, workers=workers, label=f"niah {variant}")
    needles = Documents.tokenized(
        [("", recipe.needle(key, value)) for plan in plans for key, value in plan.needles], tokenizer
    )
    hider = _Hider(variant, split, tokens - opening, haystack, needles, _sizes(needles, hay, tokenizer))
    tasks = [hider.task(i, plan) for i, plan in enumerate(progress(plans, count, "contexts"))]
    return Draft(hider.documents, tasks, Layout("", ""), inputs, "MemNIAH-v0", "string_match_all")


def _hay(
    recipe: Recipe, tokens: int, prose: Sequence[str], tokenizer: TextTokenizer, rng: np.random.Generator
) -> Documents:
    """The haystack's sentences; of needles, about twice as many as fit."""
    if recipe.haystack == "needles":
        (key,), (value,) = draw(recipe.key, 1, rng), draw(recipe.value, 1, rng)
        size = max(_LEAST_POOL, 2 * tokens // tokenizer.count(recipe.needle(key, value)))
        pairs = zip(draw(recipe.key, size, rng), draw(recipe.value, size, rng), strict=True)
        texts = [recipe.needle(key, value) for key, value in pairs]
    elif recipe.haystack == "noise":
        texts = [recipe.document(sentence) for sentence in _NOISE]
    else:
        texts = [recipe.document(sentence) for text in prose for sentence in sentences(text)]
    if not texts:
        raise ValueError("this NIAH variant hides its needles in prose and got none; give a folder of essays")
    return Documents.tokenized([("", text) for text in texts], tokenizer)


def _sizes(documents: Documents, hay: Documents, tokenizer: TextTokenizer) -> Ints:
    """(D,) tokens of each document between two sentences of the haystack.

    Sentences begin and end alike, so those whose first few have no more there than alone have none.
    """
    before, behind = hay.texts[0][-16:], hay.texts[0][:16]  # of a neighbour, what touches is enough

    def more(texts: Sequence[str]) -> Ints:
        return seam_tokens(tokenizer, texts, before, behind) - tokenizer.count(before + behind)

    if not more(documents.texts[:256]).any():
        return documents.tokens
    return documents.tokens + more(documents.texts)


@dataclass(frozen=True)
class _Haystack:
    """Sentences to hide needles among: in their order from anywhere, over and over, or shuffled."""

    documents: Documents
    tokens: Ints  # (D,) of each sentence between two others
    shuffled: bool

    @functools.cached_property
    def ends(self) -> Ints:
        """Tokens before each sentence of two rounds, and behind the last."""
        return np.cumsum(np.concatenate([[0], self.tokens, self.tokens]))

    def take(self, pick: int, room: int) -> Ints:
        """The sentences that `pick` chooses, in reading order, as many as fit in `room` tokens."""
        n = len(self.tokens)
        if self.shuffled:
            order = np.random.default_rng(pick).permutation(n)
            return order[: np.searchsorted(np.cumsum(self.tokens[order]), room, side="right")]
        rounds, rest = divmod(room, int(self.ends[n]))
        start = pick % n
        end = int(np.searchsorted(self.ends, self.ends[start] + rest, side="right")) - 1
        return np.arange(start, rounds * n + end) % n


class _Hider:
    """Puts the needles of plans into the haystack.

    Raises:
        ValueError: the needles of some task alone exceed the budget.
    """

    def __init__(
        self,
        variant: str,
        split: str,
        budget: int,
        haystack: _Haystack,
        needles: Documents,
        needle_tokens: Ints,
    ) -> None:
        self.variant, self.split, self.recipe, self.haystack = variant, split, RECIPES[variant], haystack
        per_task = self.recipe.needles
        used = needle_tokens.reshape(-1, per_task).sum(axis=1)
        if used.max() > budget:
            raise ValueError(
                f"a budget of {budget} tokens is too small for {variant}: the needles of a task alone take "
                f"up to {used.max()}; raise it"
            )
        hay = haystack.documents
        self.rooms = budget - used
        self.hay_chars, self.needle_chars = hay.chars, needles.chars.reshape(-1, per_task)
        self.documents = Documents(
            [*hay.titles, *needles.titles], [*hay.texts, *needles.texts], [*hay.gaps, *needles.gaps]
        )
        # one int object a document, shared by all tasks: a task of 20,000 documents costs 160 kB
        self.numbers = np.arange(len(self.documents.texts)).astype(object)

    def task(self, item: int, plan: Plan) -> Task:
        """The task of item `item`."""
        order = self.haystack.take(plan.pick, int(self.rooms[item]))
        grid, chars = np.array(plan.grid), self.needle_chars[item]
        ends = np.cumsum(np.concatenate([[0], self.hay_chars[order]]))
        at = np.searchsorted(ends, grid * ends[-1])  # the first sentence end at the depth or behind it
        down = np.argsort(grid)
        own = len(self.hay_chars) + item * len(grid) + np.arange(len(grid))
        documents = np.insert(order, at[down], own[down])
        before = np.empty_like(chars)  # characters of the needles above each needle
        before[down] = np.cumsum(chars[down]) - chars[down]
        asked = self.recipe.answers
        depths = ((ends[at] + before) / (ends[-1] + chars.sum()))[:asked]
        keys, values = zip(*plan.needles[:asked], strict=True)
        keys = tuple(dict.fromkeys(keys))
        return Task(
            f"{self.variant}-{self.split}-{item}",
            self.recipe.question(keys),
            (values,),
            tuple(self.numbers[documents].tolist()),
            tuple(self.numbers[own[:asked]].tolist()),
            {
                "variant": self.variant,
                "keys": list(keys),
                "values": list(values),
                "depths": depths.tolist(),
                "grid": list(plan.grid[:asked]),
            },
        )
