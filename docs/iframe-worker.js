/* Search on pages read from disk. Browsers start no worker for them, so its script runs in a hidden frame instead.
   That script looks for the name IFrameWorker, and Material's plugin `offline` for the name of this file. */
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.srcdoc = `<script src="${url}"></script>`
      this.scope = new Promise(resolve => {
        frame.onload = () => {
          frame.contentWindow.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}))
          resolve(frame.contentWindow)
        }
      })
      document.body.append(frame)
    }

    postMessage(data) {
      this.scope.then(scope => scope.dispatchEvent(new MessageEvent("message", {data})))
    }
  }
}
