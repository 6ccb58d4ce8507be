// An MCP host with version 2 of the TypeScript client: one task, and what it has received as JSON.
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [program, folder, prompt, mode] = process.argv.slice(2);
const client = new Client(
  { name: "host of a test", version: "1" },
  { versionNegotiation: { mode } },
);
const progress = [];
await client.connect(
  new StdioClientTransport({
    command: program,
    args: ["mcp", "serve", "-C", folder],
    env: process.env,
    stderr: "inherit",
  }),
);
const { tools } = await client.listTools();
const result = await client.callTool(
  { name: "task", arguments: { prompt } },
  { onprogress: (each) => progress.push(each.progress), resetTimeoutOnProgress: true },
);
const names = tools.map((tool) => tool.name);
const server = client.getServerVersion();
const protocol = client.getNegotiatedProtocolVersion();
console.log(JSON.stringify({ server, protocol, names, result, progress }));
await client.close();
