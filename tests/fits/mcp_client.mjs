// An MCP host with the TypeScript client of the protocol: one task, and what it has received as JSON.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [program, folder, prompt] = process.argv.slice(2);
const client = new Client({ name: "host of a test", version: "1" });
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
const result = await client.callTool({ name: "task", arguments: { prompt } }, undefined, {
  onprogress: (each) => progress.push(each.progress),
  resetTimeoutOnProgress: true,
});
const names = tools.map((tool) => tool.name);
console.log(JSON.stringify({ server: client.getServerVersion(), names, result, progress }));
await client.close();
