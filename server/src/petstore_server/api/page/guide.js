"use strict";

// The examples have the address from which the page was loaded.
const example = "http://127.0.0.1:8080/";
const here = new URL("../", document.baseURI).href;
const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  if (texts.currentNode.data.includes(example)) {
    texts.currentNode.data = texts.currentNode.data.replaceAll(example, here);
  }
}
