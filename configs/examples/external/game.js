// A corridor of eleven cells with the goal in the middle, played over HTTP for corridor.yaml with the actor json.
//
// arena train corridor.yaml --set envs.live.kwargs.actor=json
// node game.js [URL] [GAMES]
"use strict";

const url = process.argv[2] ?? "http://127.0.0.1:8000/step";
const most = Number(process.argv[3] ?? Infinity);
const cells = 11;
const goal = 5;
const mostSteps = 50;
let answered = false;

class Ended extends Error {}

const pause = () => new Promise((resolve) => setTimeout(resolve, 200));

// One request: start, tick or end. Waits for a server that is not ready yet.
async function step(kind, game, said) {
  for (;;) {
    let reply, text;
    try {
      const body = said === undefined ? "" : JSON.stringify(said);
      reply = await fetch(url, { method: "POST", headers: { step_kind: kind, game_id: game }, body });
      text = await reply.text();
    } catch (error) {
      if (answered && error.cause?.code === "ECONNREFUSED") throw new Ended();
      await pause();
      continue;
    }
    if (reply.ok) {
      answered = true;
      return kind === "start" ? null : JSON.parse(text);
    }
    const { error } = JSON.parse(text);
    if (error === "over" || error === "draining") throw new Ended();
    if (error !== "not_ready" && error !== "no_slot") throw new Error(text);
    await pause();
  }
}

async function play(number) {
  const game = `corridor-${process.pid}-${number}`;
  let cell = Math.floor(Math.random() * cells);
  let steps = 0;
  let sum = 0;
  let reward = 0;
  await step("start", game);
  while (steps === 0 || (cell !== goal && steps < mostSteps)) {
    const { action } = await step("tick", game, { observation: [(cell - goal) / cells], reward });
    cell = Math.min(cells - 1, Math.max(0, cell + (action === 1 ? 1 : -1)));
    reward = cell === goal ? 1 : -0.1;
    sum += reward;
    steps += 1;
  }
  await step("end", game, { observation: [(cell - goal) / cells], reward, truncated: cell !== goal });
  console.log(`game ${number}: return ${sum.toFixed(1)} in ${steps} steps`);
}

async function main() {
  try {
    for (let number = 1; number <= most; number += 1) await play(number);
  } catch (error) {
    if (!(error instanceof Ended)) throw error;
    console.log("the run has ended");
  }
}

main();
