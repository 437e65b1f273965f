"use strict";
// Keep one request open while the page is open, and update the dynamic part when it changes.
const live = document.getElementById("live");
const events = new EventSource("/events" + (live?.dataset.of ?? ""));
// A click counts only if its element stays from the press to the release, so meanwhile updates wait.
let pressed = false, newest = null;
function update() {
  if (!live || pressed || newest === null) return;
  const focused = document.activeElement && document.activeElement.id;
  const opened = [...live.querySelectorAll("details[open]")].map(each => each.id);
  live.innerHTML = newest;
  newest = null;
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  if (focused) document.getElementById(focused)?.focus();
}
events.addEventListener("live", event => {
  newest = event.data;
  update();
});
for (const name of ["pointerdown", "keydown"]) addEventListener(name, () => { pressed = true; });
for (const name of ["pointerup", "pointercancel", "dragend", "keyup", "blur"]) {
  addEventListener(name, () => setTimeout(() => {  // after the click, which comes later
    pressed = false;
    update();
  }));
}
// The server may end the request of a page, so one error is no failure; the browser reconnects.
let errors = 0;
events.addEventListener("error", () => {
  errors += 1;
  document.getElementById("away").hidden = events.readyState !== EventSource.CLOSED && errors < 2;
});
events.addEventListener("open", () => {
  errors = 0;
  document.getElementById("away").hidden = true;
});

// A double click or a held key sends a form once. The page would show the answer to the last request,
// mostly an error, because the first one has already done it.
const PAUSE_MILLISECONDS = 1000;
let tried = -PAUSE_MILLISECONDS;
addEventListener("submit", event => {
  if (event.timeStamp - tried < PAUSE_MILLISECONDS) event.preventDefault();
  tried = event.timeStamp;
});

// Reload the page of a logon when the logon has another question or has ended.
const waiting = document.querySelector("[data-wait]");
if (waiting) fetch(waiting.dataset.wait).then(() => location.reload(), () => {});

// Copy the text of a field.
for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", () => {
    const field = document.getElementById(button.dataset.copy);
    navigator.clipboard.writeText(field.value).then(
      () => { button.textContent = button.dataset.copied; }, () => field.select());
  });
}
