"use strict";

// The contract of each version of the API. The address names the version to show: docs?api=v2.
const contracts = { v1: "openapi", v2: "openapi-v2" };
const asked = new URLSearchParams(location.search).get("api");
const version = Object.hasOwn(contracts, asked) ? asked : "v1";

// The page sends its requests to the server that it came from, whatever addresses the contract names: a key that was
// pasted here must not be sent to another host. Those addresses are shown in the text instead.
const here = new URL(version, document.baseURI);

function describe(contract) {
  const elsewhere = contract.servers.filter((server) => /^https?:/.test(server.url));
  const rows = elsewhere.map((server) => `| ${server.description} | \`${server.url}\` |`);
  const table = rows.length ? ["| Environment | Base address |", "|---|---|", ...rows, "", ""].join("\n") : "";
  return table + contract.info.description.replaceAll("{base address}", here.href);
}

function forThePage(contract) {
  contract.info.description = describe(contract);
  contract.servers = [{ url: here.pathname, description: "This server" }];
  Object.values(contract.components.parameters)
    .filter((parameter) => !parameter.required)
    .forEach((parameter) => delete parameter.example); // it would be filled in, and sent
  return contract;
}

// A browser takes minutes to lay out megabytes of text.
const LONGEST_SHOWN = 100_000;
// Swagger UI parses JSON to indent it, which rounds numbers beyond 2^53: such a response is shown as it was sent.
const BEYOND_DOUBLES = /[:[,]\s*-?\d{16,}/;

function asText(response, text) {
  response.text = response.data = text;
  response.body = response.obj = undefined;
  response.headers = { ...response.headers, "content-type": "text/plain" };
  return response;
}

function showable(response) {
  const text = response.text ?? "";
  if (text.length > LONGEST_SHOWN) {
    const size = `${(text.length / 1e6).toFixed(1)} MB`;
    const note = `Only the beginning of ${size} is shown here. The curl command above gets everything.`;
    return asText(response, `${note}\n\n${text.slice(0, LONGEST_SHOWN)}…`);
  }
  return BEYOND_DOUBLES.test(text) ? asText(response, text) : response;
}

function show(contract) {
  SwaggerUIBundle({
    spec: forThePage(contract),
    dom_id: "#page",
    presets: [SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
    deepLinking: true,
    defaultModelsExpandDepth: 0,
    defaultModelExpandDepth: 2,
    displayRequestDuration: true,
    docExpansion: "list",
    persistAuthorization: false,
    responseInterceptor: showable,
    showExtensions: true,
    syntaxHighlight: { activated: false }, // ten thousand orders would take half a minute to colour
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

function markVersion() {
  document.querySelector(`.page-header a[href="docs?api=${version}"]`).setAttribute("aria-current", "page");
  for (const format of ["yaml", "json"]) {
    document.getElementById(format).href = `${contracts[version]}.${format}`;
  }
}

async function load() {
  const response = await fetch(`${contracts[version]}.json`);
  if (!response.ok) {
    throw new Error(`status ${response.status}`);
  }
  return response.json();
}

markVersion();
load().then(show).catch(complain);
