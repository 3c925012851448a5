// What all pages of the board share.

// Elements have no styles of their own in a page, which its Content-Security-Policy forbids: they are set here.
export function dress(root) {
  for (const element of root.querySelectorAll("[data-css]")) element.style.cssText = element.dataset.css;
}

export function parsed(html) {
  const made = document.createElement("template");
  made.innerHTML = html;
  return made.content;
}

// Puts new content into a section. Charts that are drawn, open details, the focus and what is scrolled to stay.
const active = "a, button, summary, input, [tabindex]";
export function replace(section, content) {
  dress(content);
  const open = [...section.querySelectorAll("details")].map((one) => one.open);
  if (open.length) content.querySelectorAll("details").forEach((one, place) => (one.open = open[place] ?? one.open));
  const drawn = new Map([...section.querySelectorAll("[data-chart]")].map((place) => [place.dataset.chart, place]));
  const focus = [...section.querySelectorAll(active)].indexOf(document.activeElement);
  const across = [...section.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  for (const place of content.querySelectorAll("[data-chart]")) {
    const before = drawn.get(place.dataset.chart);
    if (before?.drawn && before.dataset.css === place.dataset.css) place.replaceWith(before);
  }
  section.replaceChildren(content);
  window.arenaCharts?.wire(section);
  document.dispatchEvent(new CustomEvent("renewed", { detail: section }));
  section.querySelectorAll(".scroll").forEach((one, place) => (one.scrollLeft = across[place] ?? 0));
  if (focus >= 0) section.querySelectorAll(active)[focus]?.focus({ preventScroll: true });
}

// Takes what the server sends. The stream rests while no one looks, so that many tabs do not wait for each other.
export function listen(address, live, take) {
  let stream = null;
  function follow() {
    if (document.hidden) {
      stream?.close();
      stream = null;
    } else if (!stream) {
      stream = new EventSource(address);
      stream.onopen = () => (live.textContent = "connected");
      stream.onmessage = (event) => take(JSON.parse(event.data));
      stream.onerror = async () => {
        live.textContent = "not connected: the server has ended, or is busy";
        if (stream?.readyState === EventSource.CLOSED) live.textContent = await (await fetch(address)).text(); // refused
      };
    }
  }
  document.addEventListener("visibilitychange", follow);
  follow();
}

dress(document);
