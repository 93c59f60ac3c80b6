"use strict";

// The contract of each version of the API. The address names the version to show: docs?api=v2.
const contracts = { v1: "openapi", v2: "openapi-v2" };
const asked = new URLSearchParams(location.search).get("api");
const version = Object.hasOwn(contracts, asked) ? asked : "v1";

// The page sends its requests to the server that it came from, whatever addresses the contract names: a key that was
// pasted here must not be sent to another host. Those addresses are shown in the text instead.
const here = new URL(version, document.baseURI);

// Every response carries these headers, or every error does. The text says so once; in each of a dozen errors they
// would hide what differs.
const everywhere = [
  "Cache-Control",
  "X-Request-Id",
  "X-RateLimit-Limit",
  "X-RateLimit-Remaining",
  "X-RateLimit-Reset",
  "RateLimit-Policy",
  "RateLimit",
];

function describe(contract) {
  const elsewhere = contract.servers.filter((server) => /^https?:/.test(server.url));
  const rows = elsewhere.map((server) => `| ${server.description} | \`${server.url}\` |`);
  const table = rows.length ? ["| Environment | Base address |", "|---|---|", ...rows, "", ""].join("\n") : "";
  return table + contract.info.description.replaceAll("{base address}", here.href);
}

function shorten(responses) {
  for (const [name, response] of Object.entries(responses)) {
    if (response.headers && !/^[23]/.test(name)) {
      everywhere.forEach((header) => delete response.headers[header]);
    }
  }
}

function forThePage(contract) {
  contract.info.description = describe(contract);
  contract.servers = [{ url: here.pathname, description: "This server" }];
  Object.values(contract.components.parameters)
    .filter((parameter) => !parameter.required)
    .forEach((parameter) => delete parameter.example); // it would be filled in, and sent
  shorten(contract.components.responses);
  Object.values(contract.paths)
    .flatMap(Object.values)
    .forEach((operation) => shorten(operation.responses));
  return contract;
}

// A key is a secret: its field hides what is typed, like any password field.
function hiddenKey() {
  let Input; // one component, or the field would be made again, and lose its focus, with each letter
  return {
    wrapComponents: {
      HttpAuth: (Original, { React }) => (props) => {
        const getComponent = (name, ...rest) => {
          if (name !== "Input") {
            return props.getComponent(name, ...rest);
          }
          const Plain = props.getComponent(name, ...rest);
          Input ??= (given) => React.createElement(Plain, { ...given, type: "password", autoComplete: "off" });
          return Input;
        };
        return React.createElement(Original, { ...props, getComponent });
      },
    },
  };
}

// Swagger UI takes a header apart at its commas, and would show it without the spaces after them.
function joinHeaders(response) {
  for (const [name, value] of Object.entries(response.headers ?? {})) {
    if (Array.isArray(value)) {
      response.headers[name] = value.join(", ");
    }
  }
  return response;
}

// Swagger UI would read a JSON body and write it again, and round identifiers beyond 2^53 on the way. Given as text, the
// body is shown with every digit.
function exactBodies() {
  return {
    wrapComponents: {
      responseBody: (Original, { React }) => (props) => {
        if (!/json/.test(props.contentType) || typeof props.content !== "string") {
          return React.createElement(Original, props);
        }
        return React.createElement(Original, { ...props, content: indented(props.content), contentType: "text/plain" });
      },
    },
  };
}

function indented(text) {
  if (!JSON.rawJSON) {
    return text; // an older browser could only round
  }
  try {
    const exact = (_, value, { source }) => (typeof value === "number" ? JSON.rawJSON(source) : value);
    return JSON.stringify(JSON.parse(text, exact), null, 2);
  } catch {
    return text; // not JSON, or cut off
  }
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
    plugins: [exactBodies, hiddenKey],
    responseInterceptor: joinHeaders,
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
