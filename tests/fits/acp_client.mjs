// An editor with the TypeScript client: one prompt, and what it has received as JSON.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk/unstable";

const [program, folder, prompt] = process.argv.slice(2);
const agent = spawn(program, ["acp"], { stdio: ["pipe", "pipe", "inherit"] });
const updates = [];
const questions = [];
const { methods } = acp;

const app = acp
  .client({ name: "editor of a test" })
  .onNotification(methods.client.session.update, (context) => {
    updates.push(context.params);
  })
  .onRequest(methods.client.session.requestPermission, (context) => {
    questions.push(context.params);
    return { outcome: { outcome: "selected", optionId: "allow" } };
  });

const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
await app.connectWith(stream, async (context) => {
  const initialized = await context.request(methods.agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: { subagents: {} },
  });
  const session = await context.request(methods.agent.session.new, { cwd: folder, mcpServers: [] });
  const answer = await context.request(methods.agent.session.prompt, {
    sessionId: session.sessionId,
    prompt: [{ type: "text", text: prompt }],
  });
  console.log(JSON.stringify({ initialized, session, answer, updates, questions }));
});
agent.stdin.end();
