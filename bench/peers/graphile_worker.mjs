// graphile-worker.

import { Logger, makeWorkerUtils, run as runWorker } from "graphile-worker";
import { serve } from "./driver.mjs";

const logger = new Logger(() => () => {});

await serve(async (url) => {
  const utils = await makeWorkerUtils({ connectionString: url, logger });
  return {
    install: async () => {
      await utils.migrate();
      await utils.addJob("bench", {}); // so that its table of tasks knows the name
    },
    enqueue: () => utils.addJob("bench", {}),
    work: (run, settings) => runWorker({ connectionString: url, logger, taskList: { bench: run }, ...settings }),
  };
});
