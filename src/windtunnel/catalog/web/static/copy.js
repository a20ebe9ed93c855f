// A button beside a message copies it. Without this script a click on the message selects the whole of it.
for (const button of document.querySelectorAll("button[data-copies]")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select it to copy";
    }
    setTimeout(() => { button.textContent = before; }, 2000);
  });
}
