"use strict";

// The page tries requests out against the very server it came from, whatever addresses the contract names: a key that
// was pasted here must not travel to another host. Those addresses are shown in the text instead.

const here = new URL("v1", document.baseURI).pathname;

function withAddresses(description, servers) {
  const elsewhere = servers.filter((server) => /^https?:/.test(server.url));
  if (elsewhere.length === 0) {
    return description;
  }
  const rows = elsewhere.map((server) => `| ${server.description} | \`${server.url}\` |`);
  return ["| Environment | Base address |", "|---|---|", ...rows, "", description].join("\n");
}

function show(contract) {
  contract.info.description = withAddresses(contract.info.description, contract.servers);
  contract.servers = [{ url: here, description: "This server" }];
  SwaggerUIBundle({
    spec: contract,
    dom_id: "#page",
    presets: [SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
    deepLinking: true,
    docExpansion: "list",
    defaultModelsExpandDepth: 0,
    defaultModelExpandDepth: 2,
    displayRequestDuration: true,
    persistAuthorization: false,
    requestSnippetsEnabled: false,
    showExtensions: true,
    tryItOutEnabled: true,
    validatorUrl: null,
  });
}

function complain(error) {
  const note = document.createElement("p");
  note.className = "page-note";
  note.textContent = `The contract could not be loaded (${error.message}). Reload the page to try again.`;
  document.getElementById("page").append(note);
}

async function load() {
  const response = await fetch("openapi.json");
  if (!response.ok) {
    throw new Error(`status ${response.status}`);
  }
  return response.json();
}

load().then(show).catch(complain);
