// A program of a user: it starts a run, answers its gate and reads its result, with the generated types.

import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { env: Record<string, string | undefined> };

type Schemas = components["schemas"];
type Run = Schemas["RunDetailResponse"];
type AnswerRequest = NonNullable<paths["/api/answers"]["post"]["requestBody"]>;
type AnswerBody = AnswerRequest["content"]["application/json"];

const client = createClient<paths>({
  baseUrl: process.env["NERVE_URL"] ?? "",
  headers: { Authorization: `Bearer ${process.env["NERVE_TOKEN"]}` },
});

function required<T>(reply: { data?: T; error?: Schemas["Error"] }): T {
  if (reply.data === undefined) {
    throw new Error(`${reply.error?.code}: ${reply.error?.message} ${reply.error?.fix}`);
  }
  return reply.data;
}

async function waitFor(run: string, state: Run["state"]): Promise<Run> {
  for (let attempt = 0; attempt < 600; attempt++) {
    const found = required(await client.GET("/api/runs/{run}", { params: { path: { run } } }));
    if (found.state === state) {
      return found;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`${run} is not ${state}`);
}

const workflows = required(await client.GET("/api/workflows"));
const workflow = workflows.workflows.find((each) => each.id === "greet");

const started = required(
  await client.POST("/api/runs", {
    params: { header: { "Idempotency-Key": "once" } },
    body: { workflow: "greet", input: { name: "Ann" }, tags: { from: "typescript", number: 1 } },
  }),
);
const waiting = await waitFor(started.run_id, "waiting");
const gate = required(await client.GET("/api/gates", { params: { query: { limit: 10 } } })).gates[0];
if (gate === undefined) {
  throw new Error("there is no gate");
}
const question: string = gate.prompt;
const choices: string[] = gate.choices ?? [];

const wrong = await client.POST("/api/answers", { body: { gate: gate.gate_id, answer: "perhaps" } });
const code: Schemas["Error"]["code"] | undefined = wrong.error?.code;
const answered = required(
  await client.POST("/api/answers", {
    body: { run: waiting.run_id, gate: gate.gate_id, answer: choices[0], hash: gate.hash },
  }),
);
const done = await waitFor(started.run_id, "completed");
const events = required(
  await client.GET("/api/runs/{run}/events", {
    params: { path: { run: done.run_id }, query: { type: ["gate_answered", "workflow_completed"] } },
  }),
);

const reason: string | undefined = done.held?.message;
const problems: string[] = workflows.problems.map((each) => `${each.file}:${each.line}: ${each.message}`);

console.log(
  JSON.stringify({
    steps: workflow?.steps,
    question,
    problems,
    isHeld: reason !== undefined,
    code,
    answer: answered.answer,
    result: done.result,
    tags: done.tags,
    tree: done.tree.map((node) => node.state),
    events: events.events.map((event) => event.event_type),
  }),
);

// What the types refuse: without an error, the compiler reports the comment above the line.

// @ts-expect-error a misspelled field
export const misspelled = done.stat;
// @ts-expect-error a state that no run has
export const unknownState = done.state === "finished";
// @ts-expect-error a code that no error has
export const unknownCode = code === "oops";
// @ts-expect-error a run without a workflow
export const incomplete = client.POST("/api/runs", { body: { input: 1 } });
// @ts-expect-error a misspelled field of a request
export const wrongBody: AnswerBody = { gate: "1", answers: "yes" };
// @ts-expect-error a path that the server does not have
export const wrongPath = client.GET("/api/run");
// @ts-expect-error the sort of a list
export const wrongSort = client.GET("/api/runs", { params: { query: { sort: "age" } } });
