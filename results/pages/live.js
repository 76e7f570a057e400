// The page of a grid that is served: its state follows each second; when other results are there, it loads again.
"use strict";

let mark = null;
const follow = async () => {
  const lost = document.querySelector(".lost");
  try {
    const answer = await fetch(window.location.href, { headers: mark ? { "If-None-Match": mark } : {}, cache: "no-store" });
    lost.textContent = answer.ok || answer.status === 304 ? "" : `, but was answered ${answer.status}`;
    if (answer.status === 200 && show(new DOMParser().parseFromString(await answer.text(), "text/html"))) {
      mark = answer.headers.get("ETag");
    }
  } catch {
    lost.textContent = ", but the program that served it has ended";
  }
};
/** Show what changed; returns whether all of it is shown. */
const show = (current) => {
  if (current.body.dataset.live !== document.body.dataset.live) {
    if (document.querySelector("dialog[open]")) return false; // the reader looks into a cell: its numbers stay
    remember();
    window.location.reload();
    return true;
  }
  const { sorted } = chosen();
  for (const selector of ["#standing", "#now", "#trials tbody"]) {
    document.querySelector(selector).replaceWith(document.adoptNode(current.querySelector(selector)));
  }
  tables.forEach((table, place) => sorted[place] && sort(table, ...sorted[place]));
  return true;
};
recall();
window.setInterval(follow, 1000);
