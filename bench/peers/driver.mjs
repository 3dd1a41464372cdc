// What a driver is asked and how it tells: see asked.py. A peer is { install, enqueue, work(run, settings) }.

import { setTimeout as sleep } from "node:timers/promises";

const WARM_UP = 5;
const SETTLE_MS = 1000;
const gap = () => 40 + Math.random() * 40;
const tell = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);

export async function serve(open) {
  const [url, what, ...rest] = process.argv.slice(2);
  const peer = await open(url);
  if (what === "install") {
    await peer.install();
  } else if (what === "enqueue") {
    const count = Number(rest[0]);
    await peer.enqueue();
    const began = performance.now();
    for (let number = 0; number < count; number++) await peer.enqueue();
    tell({ seconds: (performance.now() - began) / 1000 });
  } else if (what === "work") {
    const [count, jobMs] = [Number(rest[0]), Number(rest[1])];
    let ran = 0;
    process.stdin.once("data", () => end(ran)).once("end", () => end(ran));
    await peer.work(async () => {
      ran += 1;
      if (ran === 1) tell({ at: "first" });
      if (ran === count) tell({ at: "last" });
      if (jobMs) await sleep(jobMs);
    }, JSON.parse(rest[2]));
    await new Promise(() => {});
  } else if (what === "pickup") {
    const count = Number(rest[0]);
    const took = [];
    let began = 0;
    let pickedUp = () => {};
    await peer.work(async () => {
      took.push((performance.now() - began) / 1000);
      pickedUp();
    }, JSON.parse(rest[1]));
    await sleep(SETTLE_MS);
    for (let number = 0; number < WARM_UP + count; number++) {
      const done = new Promise((resolve) => (pickedUp = resolve));
      began = performance.now();
      await peer.enqueue();
      await done;
      await sleep(gap());
    }
    tell({ seconds: took.slice(WARM_UP) });
  }
  process.exit(0);
}

function end(ran) {
  process.stdout.write(`${JSON.stringify({ ran })}\n`, () => process.exit(0));
}
