"""Token counts, and chunks that lose no text."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from memenvs.tasks.taskset import open_tasks
from memenvs.tasks.tokens import BUNDLED, TextTokenizer, load_tokenizer, pack

UNICODE = st.lists(
    st.one_of(
        st.characters(codec="utf-8"),
        st.sampled_from(["👩‍👩‍👧", "e\u0301", "日", "\r\n", " ", "the ", "🏳️‍🌈", "\u200d"]),
    ),
    max_size=200,
).map("".join)
# Four byte tokens are the most that one character can have, so chunks of 8 can always be met.
SIZES = st.integers(8, 60)


@pytest.fixture(scope="module")
def words():
    """One token a word: what stands between words is in no token."""
    model = models.WordLevel({"[UNK]": 0}, unk_token="[UNK]")
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return TextTokenizer(backend, "words")


def chunk(text, tokenizer, size):
    (gaps,) = tokenizer.gaps([text])
    ends = [chars for chars, _ in pack(gaps, size)]
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@given(UNICODE, SIZES)
@example("a\r\nb" * 40, 8)
@example("👩‍👩‍👧" * 20, 8)
def test_chunks_joined_are_the_text_each_within_its_size_and_none_empty(text, size):
    tokenizer = load_tokenizer("world")
    pieces = chunk(text, tokenizer, size)
    assert "".join(pieces) == text
    assert all(pieces)
    (gaps,) = tokenizer.gaps([text])
    ends = pack(gaps, size)
    assert all(after - before <= size for (_, before), (_, after) in zip([(0, 0), *ends], ends, strict=False))


@given(UNICODE, st.integers(1, 20))
def test_characters_outside_every_token_are_kept(words, text, size):
    assert "".join(chunk(text, words, size)) == text


def test_a_chunk_of_one_token_may_hold_a_character_of_several():
    tokenizer = load_tokenizer("world")
    assert tokenizer.count("👩") > 1
    assert chunk("👩👩", tokenizer, 1) == ["👩", "👩"]


def test_chunks_are_as_long_as_they_may_be(words):
    assert chunk("one two three four five", words, 2) == ["one two ", "three four ", "five"]


def test_cuts_at_preferred_places_where_one_is_in_reach(words):
    (gaps,) = words.gaps(["one two three four five"])
    # a document ends after three tokens: the cut after four is given up for it
    assert pack(gaps, 4, prefer=pytest.importorskip("numpy").array([3, 5])) == [(14, 3), (23, 5)]


def test_a_text_of_no_token_counts_as_one(words):
    (gaps,) = words.gaps(["\n\n"])
    assert gaps.tolist() == [2]


def test_the_gaps_sum_to_the_text(words):
    text = "  one  two "
    (gaps,) = words.gaps([text])
    assert gaps.tolist() == [7, 4]


@given(UNICODE, st.integers(1, 50))
@example("\n\n" * 30, 3)
def test_a_truncated_text_is_a_beginning_within_its_tokens(any_tokenizer, text, size):
    kept, cut = any_tokenizer.truncate(text, size)
    assert text.startswith(kept)
    assert cut == (kept != text)
    assert any_tokenizer.count(kept) <= size


@given(UNICODE, st.integers(1, 50))
def test_a_text_is_truncated_only_if_it_has_too_many_tokens_or_characters(any_tokenizer, text, size):
    _, cut = any_tokenizer.truncate(text, size)
    assert cut == (len(text) > 16 * size or any_tokenizer.count(text) > size)


@pytest.mark.parametrize("name", BUNDLED)
@pytest.mark.parametrize("size", [40, 300])
def test_prose_is_truncated_behind_the_last_of_its_first_tokens(name, size):
    tokenizer = load_tokenizer(name)
    prose = " ".join(open_tasks("world-test").texts(range(20)))
    for start in range(0, 400, 7):  # again and again, so that words are remembered
        text = prose[start : start + 20 * size]
        (gaps,) = tokenizer.gaps([text])
        assert tokenizer.truncate(text, size) == (text[: gaps[:size].sum()], True)


@pytest.mark.parametrize("text", ["secret" * 1000, "secret" + " " * 6000])
def test_a_truncated_text_has_at_most_sixteen_characters_a_token(words, text):
    # one token is any length of unknown word or of white space
    assert words.count(text) == 1
    assert words.truncate(text, 8) == (text[: 16 * 8], True)


def test_a_short_text_is_not_taken_for_few_tokens_where_bytes_are_no_bound():
    model = models.BPE({"<unk>": 0, "\u2581": 1, "a": 2}, [], unk_token="<unk>")
    backend = Tokenizer(model)
    backend.normalizer = normalizers.Replace("a", "aaa")
    tokenizer = TextTokenizer(backend, "grows")
    assert tokenizer.count("aa") == 6
    assert tokenizer.truncate("aa", 3) == ("a", True)


def test_counts_are_those_of_the_backend():
    tokenizer = load_tokenizer("world")
    texts = ["", "a word", "日本語"]
    assert tokenizer.counts(texts) == [tokenizer.count(text) for text in texts]


def variant(tokenizer, pre_tokenizer, normalizer=None, added=()):
    """A bundled tokenizer with another way to split a text."""
    backend = Tokenizer.from_str(load_tokenizer(tokenizer).backend.to_str())
    backend.pre_tokenizer, backend.normalizer = pre_tokenizer, normalizer
    backend.add_tokens(list(added))
    return TextTokenizer(backend, "variant")


def split_by(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def unsplit(pre_tokenizer):
    """A tokenizer whose tokens may hold several words."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizer
    texts = ["the 1903 (the a (a the 1903 a (a 1903" for _ in range(3)]
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    return TextTokenizer(backend, "unsplit")


GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
LLAMA3 = PRETOKENIZE_REGEX.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
COUNTED = {
    "world": load_tokenizer("world"),
    "general": load_tokenizer("general"),
    "gpt2, a space first": variant("general", pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "qwen": variant("general", split_by(PRETOKENIZE_REGEX), normalizers.NFC()),
    "llama 3": variant("general", split_by(LLAMA3)),
    "lines": unsplit(split_by(r"\n+")),
    "not split": unsplit(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)),
    "takes space": variant("general", GPT2, added=[AddedToken("<img>", rstrip=True), AddedToken("the 1903")]),
}
WORDS = (
    " a",
    " the",
    " 1903",
    "Ada",
    "'s",
    " (",
    "...",
    " <img>",
    "<|im_end|>",
    "日本",
    "👩‍👩‍👧",
    "e\u0301",
    "½",
)
SPACES = ("\n", " \n", "\t", "\r\n", "\u0301", "\u00a0", "\u2003", "\x1c", "\x85", "\u180e", "\u200b")
PARTS = st.sampled_from(WORDS + SPACES)


@given(st.lists(st.one_of(st.just(" "), PARTS, st.characters(codec="utf-8")), max_size=60).map("".join))
@example("the 1903 (the a (a the 1903 a (a 1903")
@example("the 1903 <img> 1903 the 1903 <img> 1903")
@pytest.mark.parametrize("name", COUNTED)
def test_a_text_has_as_many_tokens_as_the_tokenizer_makes_of_it_at_every_count(name, text):
    tokenizer = COUNTED[name]
    made = len(tokenizer.backend.encode(text, add_special_tokens=False))
    assert [tokenizer.count(text), tokenizer.count(text)] == [made, made]


def test_counts_stay_right_when_more_words_come_than_are_remembered(monkeypatch):
    monkeypatch.setattr("memenvs.tasks.tokens._WORDS", 5)
    tokenizer = variant("world", GPT2)
    texts = [
        f"The {word} of {'long' * 20} {word * 3} and {word}" for word in ("mayor", "town", "dam", "mayor")
    ]
    assert [tokenizer.count(text) for text in texts] == tokenizer.counts(texts)


def test_a_tokenizer_loads_from_a_file_and_from_a_folder(tmp_path):
    load_tokenizer("world").backend.save(str(tmp_path / "tokenizer.json"))
    by_file, by_folder = load_tokenizer(str(tmp_path / "tokenizer.json")), load_tokenizer(str(tmp_path))
    assert by_file.fingerprint == by_folder.fingerprint == load_tokenizer("world").fingerprint


def test_truncation_saved_with_a_tokenizer_is_not_applied(tmp_path):
    backend = Tokenizer.from_str(load_tokenizer("world").backend.to_str())
    backend.enable_truncation(4)
    backend.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(str(tmp_path)).count("word " * 50) >= 50


def test_a_tokenizer_is_loaded_again_when_its_file_has_changed(tmp_path, words):
    load_tokenizer("world").backend.save(str(tmp_path / "tokenizer.json"))
    before = load_tokenizer(str(tmp_path))
    assert load_tokenizer(str(tmp_path)) is before
    words.backend.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(str(tmp_path)).fingerprint == words.fingerprint != before.fingerprint


def test_a_tokenizers_name_is_the_last_part_of_its_path(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    load_tokenizer("world").backend.save(str(tmp_path / "mine" / "tokenizer.json"))
    monkeypatch.chdir(tmp_path / "mine")
    names = [load_tokenizer(name).name for name in (str(tmp_path / "mine"), "../mine", ".", "tokenizer.json")]
    assert names == ["mine", "mine", "mine", "tokenizer.json"]


@pytest.mark.parametrize("name", ["no-such/tokenizer-anywhere", "", "pyproject.toml"])
def test_an_unknown_tokenizer_is_one_line_that_names_the_choices(name, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match=r"'world'|tokenizer\.json") as error:
        load_tokenizer(name)
    assert "\n" not in str(error.value)
