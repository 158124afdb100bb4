// A bad network, on request: it lies beneath the client, which must cope with it as with a real one.
// What always holds: the server has answered before a reply is lost, so that what it did stays done.

import { log, pause } from "./page.js";

const MARK = "hotel:bad-network";
const LOST = 2 / 3;

export const isBad = () => sessionStorage.getItem(MARK) === "on";

/** A fetch that loses the reply to two POSTs of three while the switch is on. */
export function unreliable(fetch) {
  return async (resource, init = {}) => {
    const method = (init.method ?? resource.method ?? "GET").toUpperCase();
    if (method !== "POST" || !isBad()) return fetch(resource, init);
    const response = await fetch(resource, init);
    await response.clone().arrayBuffer(); // to the last byte: then the server has written down what it did
    await pause(300 + Math.random() * 1200);
    if (Math.random() >= LOST) return response;
    const keyed = [...new Headers(init.headers).keys()].some((name) => name.endsWith("idempotency-key"));
    log(`reply lost – trying again${keyed ? " with the same key" : ""}`);
    throw new TypeError("The reply was lost.");
  };
}

/** Makes the button a switch that keeps its place while the tab is open. */
export function wire(button) {
  const show = () => button.setAttribute("aria-pressed", String(isBad()));
  button.addEventListener("click", () => {
    sessionStorage.setItem(MARK, isBad() ? "off" : "on");
    show();
  });
  show();
}
