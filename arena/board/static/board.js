// What all pages of the board share.

// Elements have no styles of their own in a page, which its Content-Security-Policy forbids: they are set here.
export function dress(root) {
  for (const element of root.querySelectorAll("[data-css]")) element.style.cssText = element.dataset.css;
}

dress(document);
