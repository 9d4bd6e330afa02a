"""An engine's requests are kept apart, and it is shut down before the interpreter ends."""

import itertools
import threading
import weakref
from types import SimpleNamespace

import pytest

from memenvs.models.vllm import add_request, drop, generate, load_engine, stop_engine, wait


class CountingLLM:
    """Stands in for `vllm.LLM`: a request takes as many steps as its parameters say."""

    def __init__(self):
        self.llm_engine, self.request_counter = self, itertools.count()
        self.left, self.prompts = {}, {}

    def add_request(self, number, prompt, steps):
        self.left[number], self.prompts[number] = steps, prompt["prompt_token_ids"]

    def abort_request(self, numbers):
        for number in numbers:
            self.left.pop(number, None)

    def step(self):
        if not self.left:
            raise RuntimeError("no request is under way")
        self.left = {number: steps - 1 for number, steps in self.left.items()}
        ended = [number for number, steps in self.left.items() if steps <= 0]
        outputs = [
            SimpleNamespace(request_id=number, finished=number in ended, text=self.prompts[number])
            for number in self.left
        ]
        for number in ended:
            del self.left[number]
        return outputs


def test_each_prompt_gets_its_own_output_whenever_it_ends():
    outputs = generate(CountingLLM(), [[1], [2], [3]], [3, 1, 2])
    assert [output.text for output in outputs] == [[1], [2], [3]]


def test_no_prompts_have_no_outputs():
    assert generate(CountingLLM(), [], []) == []


def test_a_request_under_way_keeps_its_output_while_another_caller_generates():
    llm = CountingLLM()
    short, long = add_request(llm, [7], 1), add_request(llm, [8], 9)
    (output,) = generate(llm, [[1]], [3])  # the short request ends meanwhile
    assert output.text == [1]
    assert [output.text for output in wait(llm, [short, long]).values()] == [[7]]
    assert [output.text for output in wait(llm, [long]).values()] == [[8]]


def test_waiting_for_nothing_takes_no_step():
    assert wait(CountingLLM(), []) == {}


def test_a_dropped_request_is_neither_sampled_nor_kept():
    llm = CountingLLM()
    short, long = add_request(llm, [7], 1), add_request(llm, [8], 9)
    generate(llm, [[1]], [2])
    drop(llm, [short, long])
    assert llm.left == {}
    assert [output.text for output in generate(llm, [[2]], [1])] == [[2]]


def test_requests_of_a_caller_that_is_interrupted_are_dropped():
    llm = CountingLLM()

    def interrupt():
        raise KeyboardInterrupt

    llm.step = interrupt
    with pytest.raises(KeyboardInterrupt):
        generate(llm, [[1], [2]], [1, 1])
    assert llm.left == {}


def test_requests_before_one_that_the_engine_refuses_are_dropped():
    class Refusing(CountingLLM):
        def add_request(self, number, prompt, steps):
            if len(prompt["prompt_token_ids"]) > 1:
                raise ValueError("the prompt is longer than the window")
            super().add_request(number, prompt, steps)

    llm = Refusing()
    with pytest.raises(ValueError, match="window"):
        generate(llm, [[1], [2, 3]], [1, 1])
    assert llm.left == {}


class Engine:
    """Has a thread that ends when it is shut down."""

    def __init__(self):
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.over.wait, daemon=True)
        self.thread.start()
        self.llm_engine = SimpleNamespace(engine_core=SimpleNamespace(shutdown=self.over.set))


def test_its_threads_have_ended():
    engine = Engine()
    stop_engine(weakref.ref(engine), [engine.thread])
    assert not engine.thread.is_alive()


def test_an_engine_that_is_gone_is_waited_for_all_the_same():
    engine = Engine()
    engine.over.set()
    thread, gone = engine.thread, weakref.ref(engine)
    del engine
    stop_engine(gone, [thread])
    assert not thread.is_alive()


def test_an_adapters_folder_is_no_model(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"merged\(\)\.save"):
        load_engine(tmp_path, None)
