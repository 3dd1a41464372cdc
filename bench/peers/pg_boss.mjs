// pg-boss.

import { PgBoss } from "pg-boss";
import { serve } from "./driver.mjs";

await serve(async (url) => {
  const boss = new PgBoss({ connectionString: url, useListenNotify: true });
  boss.on("error", () => {});
  await boss.start();
  return {
    install: () => boss.createQueue("bench", { notify: true }),
    enqueue: () => boss.send("bench", {}),
    work: (run, settings) => boss.work("bench", settings, async (jobs) => void (await Promise.all(jobs.map(run)))),
  };
});
