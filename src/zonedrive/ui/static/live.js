"use strict";
// Keep one request open while the page is open, and update the dynamic part when it changes.
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
