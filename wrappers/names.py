"""Reward methods and scorers by name, and where each is; nothing here loads one."""

from __future__ import annotations

METHODS = {
    "TAMTRL": "memenvs.wrappers.tamtrl:TAMTRL",
    "InfoMem": "memenvs.wrappers.infomem:InfoMem",
    "MemPO": "memenvs.wrappers.mempo:MemPO",
    "SearchRewards": "memenvs.wrappers.search_rewards:SearchRewards",
    "SearchR1": "memenvs.wrappers.search_r1:SearchR1",
    "ToolRewards": "memenvs.wrappers.tool_rewards:ToolRewards",
    "GiGPO": "memenvs.wrappers.gigpo:GiGPO",
    "IGPO": "memenvs.wrappers.igpo:IGPO",
    "TRACE": "memenvs.wrappers.trace:TRACE",
    "ReMemR1": "memenvs.wrappers.rememr1:ReMemR1",
    "StepSearch": "memenvs.wrappers.stepsearch:StepSearch",
    "RepeatedCalls": "memenvs.wrappers.repeated_calls:RepeatedCalls",
    "OTC": "memenvs.wrappers.otc:OTC",
    "FormatGate": "memenvs.wrappers.format_gate:FormatGate",
    "Continuations": "memenvs.wrappers.continuations:Continuations",
    "QuestionCredit": "memenvs.wrappers.question_credit:QuestionCredit",
    "Judge": "memenvs.wrappers.judge:Judge",
    "PRM": "memenvs.wrappers.prm:PRM",
}
SCORERS = {
    "lexical": "memenvs.wrappers.scorers:LexicalScorer",
    "hf": "memenvs.wrappers.scorers:HFScorer",
    "vllm": "memenvs.wrappers.scorers:VLLMScorer",
    "server": "memenvs.wrappers.scorers:ServerScorer",
}
