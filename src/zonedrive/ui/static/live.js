"use strict";
// Keep one request open while the page is open, and show the live part when it changes.
const live = document.getElementById("live");
const events = new EventSource("/events" + (live?.dataset.of ?? ""));
events.addEventListener("live", event => {
  if (!live) return;
  const focused = document.activeElement && document.activeElement.id;
  const opened = [...live.querySelectorAll("details[open]")].map(each => each.id);
  live.innerHTML = event.data;
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  if (focused) document.getElementById(focused)?.focus();
});
// The server may end the request of a page, so one error says nothing; the browser connects again.
let errors = 0;
events.addEventListener("error", () => {
  errors += 1;
  document.getElementById("away").hidden = events.readyState !== EventSource.CLOSED && errors < 2;
});
events.addEventListener("open", () => {
  errors = 0;
  document.getElementById("away").hidden = true;
});

// Load the page of a logon again when the logon has gone on.
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
