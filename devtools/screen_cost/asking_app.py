"""The app asking by itself: every question once on screen, and once with the screen given back, by the same engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from app.chat.conversation import Conversation
from app.cli.answer import HeadlessAnswers
from app.cli.engine_run import EngineFailure, Interrupt
from app.cli.output.screen import HeadlessScreen
from app.domains.domain import domain_called
from app.engine_link.bridge import EngineBridge, EngineLink, make_link
from app.formatting import figures
from app.settings.settings import Settings
from app.storage.paths import AppPaths
from app.storage.records import ChatRecord
from app.storage.store import ChatStore
from app.storage.unkept_recorder import UnkeptRecorder
from app.ui.chat_app import ChatApp
from app.ui.screens.chat import ChatScreen
from app.ui.screens.domain_menu import DomainMenu
from devtools.screen_cost.cost import Answer, Pair, ScreenCost
from engine.errors import MoeChatError
from engine.events import EngineReady, Failed, TaskProgress

QUESTIONS = (
    "How do I make a good cup of tea? Give me a short numbered list, then explain every step.",
    "Write a Python function that counts the words of a text, and explain how it works.",
    "Tell me a long story about a lighthouse keeper and the sea.",
    "Compare cats and dogs as pets in a Markdown table, then give your advice.",
)
_REST_S = 0.3
"""Between two answers: nothing of the one is left to be drawn in the other."""
_LOOK_S = 0.1


class ScreenCostApp(ChatApp):
    """Tells TaskProgress as it goes on, and a ScreenCost or a Failed at the end."""

    def __init__(
        self, link: EngineLink, store: ChatStore, settings: Settings, num_pairs: int, tell: Callable[[object], None]
    ) -> None:
        """`link` is started here; `store` is not the user's."""
        super().__init__(EngineBridge(lambda: link, settings.engine_config()), store, settings)
        self._bridge.start()
        self._link, self._num_pairs, self._tell_parent = link, num_pairs, tell
        self._unkept = UnkeptRecorder(store, lambda text: None)
        self._domain = domain_called(settings.text("chat.domain"))

    def on_ready(self) -> None:
        self.run_worker(self._measure())

    async def _measure(self) -> None:
        try:
            pairs = await self._pairs(await self._opened_chat())
            self._tell_parent(ScreenCost(pairs, dict(self._model.effective).get("threads", figures.DASH)))
        except MoeChatError as error:
            self._tell_parent(Failed(None, error.title, error.message, error.hint, is_fatal=True))
        self.exit()

    async def _opened_chat(self) -> ChatScreen:
        self._progress("loading the model", 0)
        while not self.bridge.is_ready:
            if self.bridge.failure is not None:
                raise EngineFailure(self.bridge.failure)
            await asyncio.sleep(_LOOK_S)
        assert isinstance(self.screen, DomainMenu)
        self.screen.dismiss(self._domain)
        while not (isinstance(self.screen, ChatScreen) and self.screen.query("#prompt")):
            await asyncio.sleep(_LOOK_S)
        return self.screen

    async def _pairs(self, chat: ChatScreen) -> list[Pair]:
        pairs: list[Pair] = []
        asked = ""
        for number in range(self._num_pairs):
            self._progress("pairs", number)
            question = QUESTIONS[number * len(QUESTIONS) // self._num_pairs]
            if question != asked:  # the first answer finds another cache than those that repeat it
                await self._headless(question)
                asked = question
            if number % 2:
                headless = await self._headless(question)
                pairs.append(Pair(await self._on_screen(chat, question), headless))
            else:
                on_screen = await self._on_screen(chat, question)
                pairs.append(Pair(on_screen, await self._headless(question)))
        return pairs

    async def _on_screen(self, chat: ChatScreen, question: str) -> Answer:
        await chat.begin_chat(self._domain)
        await asyncio.sleep(_REST_S)
        begun = (time.perf_counter(), time.process_time())
        await chat.flow.ask(question)
        while chat.flow.is_busy:
            await asyncio.sleep(_LOOK_S)
        return _measured(chat.flow.conversation, begun)

    async def _headless(self, question: str) -> Answer:
        """As `moe-chat ask` does it. The app's loop stands still meanwhile."""
        await asyncio.sleep(_REST_S)
        ready, domain = self._model, self._domain
        chat = ChatRecord(domain.name, self._as_set(domain).system_prompt.strip(), ready.model_name)
        conversation = Conversation(chat, self._unkept, self.settings.sampling())
        with self.suspend():
            answers = HeadlessAnswers(self._link, ready, HeadlessScreen(), self.settings, self.bridge.mode)
            begun = (time.perf_counter(), time.process_time())
            answers.give(conversation, conversation.ask(question), Interrupt())
            return _measured(conversation, begun)

    @property
    def _model(self) -> EngineReady:
        assert self.bridge.ready is not None
        return self.bridge.ready

    def _progress(self, stage: str, done: int) -> None:
        self._tell_parent(TaskProgress(0, stage, done, self._num_pairs if stage == "pairs" else 0))


def run_app(
    settings: Settings, paths: AppPaths, chats_db: Path, num_pairs: int, tell: Callable[[object], None]
) -> None:
    """Run it in this terminal, from the main thread."""
    app = ScreenCostApp(make_link(paths), ChatStore(chats_db), settings, num_pairs, tell)
    try:
        app.run()
    finally:
        app.bridge.close()


def _measured(conversation: Conversation, begun: tuple[float, float]) -> Answer:
    """The answer that has just ended; `begun`: wall and core seconds when it was asked for. Raises MoeChatError."""
    core_share = (time.process_time() - begun[1]) / (time.perf_counter() - begun[0])
    answer = conversation.exchanges[-1].answer
    stats = answer.stats if answer is not None and answer.stats is not None else {}
    tpot_ms, num_tok = stats.get("tpot_ms"), stats.get("new_tok")
    if not isinstance(tpot_ms, float) or not isinstance(num_tok, int):
        raise MoeChatError("An answer had no two tokens to measure between.", "moe-chat doctor looks for the reason.")
    return Answer(tpot_ms, num_tok, core_share)
