(workflow page
  (roles (writer :agent-kind writer) (editor :agent-kind editor))
  (state write
    (send-prompt :agent writer :template "Write about ~a." :args ((input)) :tag draft)
    (await (transcript-response :request-id draft))
    (gate "Publish it?" :choices (approve reject) :reject (reject)))
  (state edit
    (send-prompt :agent editor :template "Correct: ~a" :args ((artifact writer)) :tag final)
    (await (transcript-response :request-id final))
    (terminal)))
