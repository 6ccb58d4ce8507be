// Small programs with the TypeScript agent SDK. Usage: node programs.mjs NAME
import { createSdkMcpServer, query, tool } from "@anthropic-ai/claude-agent-sdk";
import { z } from "zod";

const base = { pathToClaudeCodeExecutable: process.env.MUDROOM_PROGRAM, settingSources: [] };

async function collect(prompt, options = {}) {
  const messages = [];
  for await (const message of query({ prompt, options: { ...base, ...options } })) {
    messages.push(message);
  }
  return messages;
}

const results = (messages) => messages.filter((each) => each.type === "result");
const toolTexts = (messages) =>
  messages
    .filter((each) => each.type === "user" && Array.isArray(each.message.content))
    .flatMap((each) => each.message.content)
    .filter((block) => block.type === "tool_result")
    .map((block) => block.content);

async function* lines(...texts) {
  for (const text of texts) {
    yield {
      type: "user",
      message: { role: "user", content: text },
      parent_tool_use_id: null,
      session_id: "",
      priority: "later",
    };
  }
}

// Lines of an input that stays open until `end` is called. It waits for `begun` before the first.
function openInput(...texts) {
  return openLateInput(null, ...texts);
}

function openLateInput(begun, ...texts) {
  let end;
  const ended = new Promise((resolve) => (end = resolve));
  async function* read() {
    await begun;
    yield* lines(...texts);
    await ended;
  }
  return { lines: read(), end };
}

const programs = {
  async simpleQuery() {
    const messages = await collect("Say it.", { systemPrompt: "Be brief.", maxTurns: 3 });
    return { types: messages.map((each) => each.type), result: results(messages)[0].result };
  },

  async streamingInput() {
    const messages = await collect(lines("Say one.", "Say two."));
    return { results: results(messages).map((each) => each.result) };
  },

  async permissions() {
    const asked = [];
    const messages = await collect("CALL bash touch made\nCALL bash touch refused", {
      canUseTool: async (name, input) => {
        asked.push(name);
        if (input.command.includes("refused")) return { behavior: "deny", message: "Not this." };
        return { behavior: "allow", updatedInput: input };
      },
    });
    return { asked, texts: toolTexts(messages) };
  },

  async changedInput() {
    const messages = await collect("CALL bash touch wrong", {
      canUseTool: async () => ({ behavior: "allow", updatedInput: { command: "touch right" } }),
    });
    return { results: results(messages).length };
  },

  async denyAndStop() {
    const messages = await collect("CALL bash touch made", {
      canUseTool: async () => ({ behavior: "deny", message: "Stop.", interrupt: true }),
    });
    return { subtype: results(messages)[0].subtype };
  },

  async hooks() {
    const called = [];
    const deny = async (input) => {
      called.push([input.hook_event_name, input.tool_name, input.tool_input.command]);
      return {
        hookSpecificOutput: {
          hookEventName: "PreToolUse",
          permissionDecision: "deny",
          permissionDecisionReason: "A hook said no.",
        },
      };
    };
    const messages = await collect("CALL bash touch made", {
      hooks: { PreToolUse: [{ matcher: "Bash", hooks: [deny] }] },
    });
    return { called, texts: toolTexts(messages) };
  },

  async ownTools() {
    const add = tool("add", "Add two numbers", { a: z.number(), b: z.number() }, async (given) => ({
      content: [{ type: "text", text: `sum ${given.a + given.b}` }],
    }));
    const server = createSdkMcpServer({ name: "calc", version: "1.0.0", tools: [add] });
    const messages = await collect("CALL mcp__calc__add 15 27", {
      mcpServers: { calc: server },
      allowedTools: ["mcp__calc__add"],
    });
    return { texts: toolTexts(messages), servers: messages[0].mcp_servers };
  },

  async changedServers() {
    const add = tool("add", "Add two numbers", { a: z.number(), b: z.number() }, async (given) => ({
      content: [{ type: "text", text: `sum ${given.a + given.b}` }],
    }));
    const calc = createSdkMcpServer({ name: "calc", version: "1.0.0", tools: [add] });
    let begin;
    const begun = new Promise((resolve) => (begin = resolve));
    const input = openLateInput(begun, "CALL mcp__calc__add 15 27");
    const flags = { mcpServers: { early: { command: "none" } }, mcpServersDelivery: "initialize" };
    const run = query({ prompt: input.lines, options: { ...base, ...flags } });
    const broken = { command: "none" };
    const first = await run.setMcpServers({ calc, broken });
    const states = await run.mcpServerStatus();
    begin();
    const messages = [];
    let second;
    for await (const message of run) {
      messages.push(message);
      if (message.type !== "result") continue;
      second = await run.setMcpServers({});
      input.end();
    }
    return {
      first: { added: first.added, failed: Object.keys(first.errors) },
      second,
      states: Object.fromEntries(states.map((each) => [each.name, each.status])),
      texts: toolTexts(messages),
    };
  },

  async sessions() {
    const first = results(await collect("Say one."))[0].session_id;
    const fork = results(await collect("Say two.", { resume: first, forkSession: true }))[0];
    const last = results(await collect("Say three.", { continue: true }))[0].session_id;
    return { isForked: fork.session_id !== first, isContinued: last === fork.session_id };
  },

  async interrupt() {
    const input = openInput("WAIT", "Say more.");
    const run = query({ prompt: input.lines, options: base });
    const found = [];
    for await (const message of run) {
      if (message.type === "system" && message.subtype === "init" && !found.length) {
        await run.interrupt();
      }
      if (message.type === "result") found.push([message.subtype, message.result ?? null]);
      if (found.length === 2) input.end();
    }
    return { found };
  },

  async agents() {
    const messages = await collect("CALL task reviewer", {
      agents: { reviewer: { description: "Reviews.", prompt: "You review.", tools: ["Read"] } },
    });
    const started = messages.filter((each) => each.subtype === "task_started");
    return { names: messages[0].agents, started: started.map((each) => each.agent_type) };
  },

  async partialMessages() {
    const messages = await collect("Say it.", { includePartialMessages: true });
    const events = messages.filter((each) => each.type === "stream_event");
    return { events: events.map((each) => each.event.type) };
  },

  async changes() {
    const input = openInput("Say one.", "Say two.");
    const run = query({ prompt: input.lines, options: base });
    await run.setPermissionMode("plan");
    await run.setModel("claude-haiku-4-5");
    const seen = [];
    for await (const message of run) {
      if (message.type === "system" && message.subtype === "init") {
        seen.push([message.permissionMode, message.model]);
      }
      if (message.type === "result" && seen.length === 2) input.end();
    }
    return { last: seen.at(-1), models: (await run.supportedModels()).length };
  },

  async structuredOutput() {
    const schema = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
    const messages = await collect("EMIT", { outputFormat: { type: "json_schema", schema } });
    return { output: results(messages)[0].structured_output };
  },

  async turnLimit() {
    const messages = [];
    let error = "";
    try {
      const options = { ...base, maxTurns: 1 };
      const prompt = "CALL bash echo x";
      for await (const message of query({ prompt, options })) messages.push(message);
    } catch (failure) {
      error = failure.message;
    }
    return { subtype: results(messages)[0].subtype, error };
  },

  async information() {
    const input = openInput("Say it.");
    const run = query({ prompt: input.lines, options: base });
    const agents = (await run.supportedAgents()).map((each) => each.name);
    const commands = await run.supportedCommands();
    let refused = "";
    try {
      await run.rewindFiles("u1");
    } catch (failure) {
      refused = failure.message;
    }
    input.end();
    for await (const _ of run);
    return { agents, commands, refused };
  },
};

console.log(JSON.stringify(await programs[process.argv[2]]()));
