// An episode as the page shows it, made from its line in the file; no other part of the page knows the line.
//
// A turn has: prompt, what was new to read (null where texts were not kept or nothing shows it); chunk, where the
// chunk is in it, in characters; evidence, the documents of it in the chunk; reply, its text; tokens, how many
// (null where nobody counted them); end, how the reply was cut off; samples, [start, end, log-probability,
// advantage] of each token, in characters; advantages, of the tokens; feedback; memory, what is left in it (null
// without one); rewards and signals, Maps by name, of signals those that were measured; methods, which gave it
// credit; credits, each with its method; reward, the sum.
function shownEpisode(line) {
  const turns = line.turns || [], size = (text) => [...(text || "")].length;
  const infos = turns.length ? [turns[0].before, ...turns.map((turn) => turn.info)] : []; // infos[k] came before turn k
  const measured = new Map(Object.entries(line.measured || {})), isMeasured = (name, k) => (measured.get(name) || []).includes(k);
  const privileged = (k) => (infos[k] && infos[k].privileged) || {};
  const continues = (k) => typeof turns[k].observation !== "string";
  const readsFeedback = turns.some((_, k) => continues(k) && privileged(k).chunk_span); // chunks come as feedback
  let at = 0, sampled = 0; // characters of the last observation; tokens of the turns before
  const shown = turns.map(({ observation, reply, info, signals = {}, credits = {} }, k) => {
    let prompt = observation, chunk = privileged(k).chunk_span;
    if (readsFeedback) {
      const begin = continues(k) ? at + size(turns[k - 1].reply.text) : 0;
      if (continues(k)) prompt = infos[k].feedback;
      if (chunk) chunk = chunk.map((place) => place - begin);
      at = begin + size(prompt);
    }
    const { text, ids = [], logprobs = [], spans = [], tokens = ids.length || null, finished } = reply, { memory } = privileged(k + 1);
    const advantages = (line.advantages || []).slice(sampled, (sampled += ids.length));
    return {
      prompt: prompt || null, chunk, evidence: privileged(k).evidence_in_chunk || [], reply: text, tokens, advantages,
      end: finished !== false ? "" : tokens === 0 ? "no room behind the prompt" : "truncated at its limit",
      samples: spans.map(([a, b], t) => [a, b, logprobs[t], advantages[t]]),
      feedback: readsFeedback ? "" : info.feedback, memory: typeof memory === "string" ? memory : null,
      rewards: new Map(Object.entries(info.rewards)), signals: new Map(Object.entries(signals).filter(([name]) => isMeasured(name, k))),
      methods: Object.keys(credits),
      credits: Object.entries(credits).flatMap(([method, some]) => some.map((credit) => ({ ...credit, method }))),
      reward: line.turn_rewards[k],
    };
  });
  const { question = "", answers = [], target = "", evidence = [], sentences = [] } = privileged(0);
  return { ...line, line, question, answers, target, evidence, sentences, turns: shown };
}
